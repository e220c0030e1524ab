"""Agents are found by the names that installed packages give them, and by where their builders are."""

import dataclasses
import importlib
import pathlib
import sys
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import dm_env
import dm_env.specs
import numpy as np
import pytest
import torch

from minerva_acme import builders, specs
from minerva_acme.agents import off_policy, on_policy, ppo, registry

MODULE = """
    import dataclasses

    from minerva_acme.agents import ppo


    @dataclasses.dataclass(frozen=True, kw_only=True)
    class TheirConfig(ppo.PPOConfig):
        bonus: float = 0.5


    class TheirBuilder(ppo.PPOBuilder):
        config_class = TheirConfig


    PRESETS = {"small": TheirConfig(bonus=0.1), "another agent's": ppo.PPOConfig()}
    not_a_builder = print
"""


@pytest.fixture
def install(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """A function that installs a package which holds agents, as pip would."""
    monkeypatch.syspath_prepend(tmp_path)

    def install(package: str, **agents: str) -> None:
        lines = "".join(f"{name} = {value}\n" for name, value in agents.items())
        folder = tmp_path / f"{package}-1.2.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n")
        (folder / "entry_points.txt").write_text(f"[minerva_acme.agents]\n{lines}")
        (tmp_path / f"{package}.py").write_text(textwrap.dedent(MODULE))
        monkeypatch.syspath_prepend(tmp_path)  # as in a new process
        monkeypatch.setattr(sys, "path", [*sys.path, f"/nowhere/{package}"])
        packages.append(package)

    packages: list[str] = []
    yield install
    for package in packages:
        sys.modules.pop(package, None)


@pytest.mark.parametrize("name", registry.AGENTS)
def test_the_presets_of_an_agents_package_begin_with_the_default_one(name: str) -> None:
    presets = importlib.import_module(f"minerva_acme.agents.{name}").PRESETS
    assert next(iter(presets.items())) == ("default", registry.find(name).config())


def test_an_agent_of_an_installed_package_has_a_name_and_is_imported_when_it_is_used(
    install: Callable[..., None],
) -> None:
    install("their_package", theirs="their_package:TheirBuilder")
    entry = registry.find("theirs")
    assert list(registry.entries()) == [*registry.AGENTS, "theirs"]
    assert (entry.path, entry.source) == ("their_package:TheirBuilder", "their_package 1.2")
    assert "their_package" not in sys.modules
    assert (entry.builder.__name__, entry.config.__name__) == ("TheirBuilder", "TheirConfig")


def test_its_presets_are_those_of_its_config_beside_the_builder(install: Callable[..., None]) -> None:
    install("their_package", theirs="their_package:TheirBuilder")
    presets = registry.find("theirs").presets
    assert {name: preset.bonus for name, preset in presets.items()} == {"default": 0.5, "small": 0.1}


def test_a_builder_is_found_by_where_it_is() -> None:
    entry = registry.find("minerva_acme.agents.ppo.builder:PPOBuilder")
    assert entry.title == "PPOBuilder"
    assert (entry.builder, entry.config) == (ppo.PPOBuilder, ppo.PPOConfig)
    assert dict(entry.presets) == {"default": ppo.PPOConfig()}


def test_a_name_that_two_packages_have_is_refused_where_it_is_used(install: Callable[..., None]) -> None:
    install("one", twice="one:TheirBuilder", fine="one:TheirBuilder")
    install("other", twice="other:TheirBuilder", ppo="other:TheirBuilder")
    with pytest.raises(ValueError, match=r"Two agents are named 'twice': .*`one:TheirBuilder`.*1\.2"):
        registry.find("twice")
    with pytest.raises(
        ValueError,
        match=r"Two agents are named 'ppo': `minerva_acme\.agents\.ppo:PPOBuilder` of minerva-acme and `other"
        r":TheirBuilder` of other 1\.2\. Uninstall one of them, or choose one by its path: --agent other:The",
    ):
        registry.find("ppo")
    assert registry.find("fine").builder.__name__ == "TheirBuilder"
    assert registry.find("mpo").title == "MPO"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("no_such_module:A", "agent 'broken' of their_package 1.2 is `no_such_module:A`, which cannot be"),
        ("their_package:Missing", "cannot be imported: their_package has no Missing. It has "),
        ("their_package:not_a_builder", "`their_package:not_a_builder` must be a subclass of `AgentBuilder`"),
        ("their_package", "cannot be imported: it is not of the form module:name"),
    ],
)
def test_a_broken_entry_point_is_a_sentence_and_breaks_no_other(
    install: Callable[..., None], value: str, message: str
) -> None:
    install("their_package", broken=value, theirs="their_package:TheirBuilder")
    with pytest.raises(ValueError, match=message):
        assert registry.find("broken").config
    assert registry.find("theirs").config.__name__ == "TheirConfig"
    assert registry.find("ppo").config is ppo.PPOConfig


def test_a_name_that_nobody_has_is_a_sentence() -> None:
    with pytest.raises(ValueError, match=rf"no agent 'trpo'; there are {', '.join(registry.AGENTS)}\."):
        registry.find("trpo")


# Which config a builder takes.


@dataclasses.dataclass(frozen=True)
class Config:
    size: int = 3


@dataclasses.dataclass(frozen=True)
class NeedsSize:
    size: int


class Named(builders.AgentBuilder):
    config_class = Config


class Inherits(Named): ...


class NamesAnother(ppo.PPOBuilder):
    config_class = Config


@pytest.mark.parametrize("builder", [Named, Inherits, NamesAnother], ids=lambda b: b.__name__)
def test_the_config_is_what_the_nearest_class_names(builder: type[Any]) -> None:
    assert builders.find_config_class(builder) is Config


@pytest.mark.parametrize("name", registry.AGENTS)
def test_the_registry_names_the_config_that_the_builder_names(name: str) -> None:
    entry = registry.AGENTS[name]
    assert builders.find_config_class(entry.builder) is entry.config


class NoDataclass(builders.AgentBuilder):
    config_class = dict


class AnInstance(builders.AgentBuilder):
    config_class = Config()


@pytest.mark.parametrize(
    ("builder", "found"),
    [
        (builders.AgentBuilder, "None"),
        (on_policy.OnPolicyBuilder, "None"),
        (NoDataclass, "<class 'dict'>"),
        (AnInstance, r"Config\("),
    ],
)
def test_a_builder_that_names_no_config_is_told_how(builder: type[Any], found: str) -> None:
    message = (
        rf"{builder.__name__} must set `config_class` to the dataclass of its config, got {found}.*Write "
    )
    with pytest.raises(ValueError, match=message):
        builders.find_config_class(builder)


def test_a_builder_on_a_kit_that_names_no_config_cannot_be_made() -> None:
    class Forgot(off_policy.TransitionBuilder):
        def make_networks(self, spec: Any, generator: Any) -> Any: ...

    with pytest.raises(ValueError, match="Forgot must set `config_class` to the dataclass of its config"):
        Forgot(off_policy.TransitionConfig())


def test_a_config_without_a_default_is_a_sentence() -> None:
    entry = registry.AgentEntry("x", __name__, "NeedsSize", "")
    with pytest.raises(ValueError, match=r"`size` of NeedsSize must have a default, got none\. .*PRESETS = "):
        entry._make_default(NeedsSize)


def test_a_builder_may_make_its_bases_config_from_one_of_its_own():
    class Wrapping(ppo.PPOBuilder):
        config_class = Config

        def __init__(self, config: Config) -> None:
            super().__init__(ppo.PPOConfig(num_epochs=3))

    assert Wrapping(Config()).config.num_epochs == 3


@pytest.mark.parametrize("agent", list(registry.AGENTS))
def test_networks_are_made_without_a_look_at_the_global_generator(
    agent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch locks it while it makes the tensor of its state: two threads may then wait for each other."""
    for name in ("get_rng_state", "set_rng_state"):
        monkeypatch.setattr(torch.random, name, lambda *_: pytest.fail("the global generator is read or set"))
    image = dm_env.specs.BoundedArray((16, 16, 3), np.uint8, 0, 255, name="image")
    vector = dm_env.specs.BoundedArray((3,), np.float32, -1.0, 1.0, name="vector")
    reward = dm_env.specs.Array((), np.float32, name="reward")
    discount = dm_env.specs.BoundedArray((), np.float32, 0.0, 1.0, name="discount")
    made = 0
    for config in registry.AGENTS[agent].presets.values():
        for actions in (dm_env.specs.DiscreteArray(3, name="action"), vector):
            builder: Any = registry.AGENTS[agent].builder
            builder = builder(config)
            spec = specs.EnvironmentSpec({"image": image, "vector": vector}, actions, reward, discount)
            try:
                builder.check_spec(spec)
            except ValueError:  # it takes the other actions, or a preset for vectors
                continue
            builder.make_networks(spec, torch.Generator().manual_seed(0))
            made += 1
    assert made
