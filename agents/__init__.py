"""Agents: each is a package with its config, networks, acting, learning and builder.

For example `mpo` has the config `mpo.MPOConfig`, ready-made configs in `mpo.PRESETS`, and the builder
`mpo.MPOBuilder(config)`, which `experiments.ExperimentConfig` takes.
"""

from typing import TYPE_CHECKING

from minerva_acme.names import lazy

if TYPE_CHECKING:
    from minerva_acme.agents import (  # noqa: F401 -- offered by `__getattr__`
        bc,
        crr,
        d4pg,
        dqn,
        impala,
        iql,
        mpo,
        off_policy,
        on_policy,
        ppo,
        r2d2,
        registry,
        sac,
        td3,
        vmpo,
        wpo,
    )

if __name__ != "minerva_acme.agents":
    # Imported by its folder's name, from the repository's root: every class would exist twice.
    raise ImportError(
        f"`{__name__}` is installed as `minerva_acme.agents`: write `from minerva_acme.agents import ...`."
    )

__all__: list[str] = []

__getattr__, __dir__ = lazy.attach(__name__, __file__)
