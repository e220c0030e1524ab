"""Adders: timesteps in, replay items out."""

if __name__ != "minerva_acme.adders":
    # Found by its folder's name, from the repository's root: every class would exist twice.
    raise ImportError(
        f"`{__name__}` is installed as `minerva_acme.adders`: write `from minerva_acme.adders import ...`."
    )

from minerva_acme.adders.n_step import NStepTransitionAdder
from minerva_acme.adders.sequence import SequenceAdder

__all__ = ["NStepTransitionAdder", "SequenceAdder"]
