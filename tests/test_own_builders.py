"""A method of a builder that would have no effect is refused where it is defined."""

import abc

import pytest

from minerva_acme import builders
from minerva_acme.agents import mpo, off_policy, registry, sac, td3


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("make_netwoks", "make_networks"),
        ("make_polcy", "make_policy"),
        ("make_objective", "make_objectives"),
        ("make_dataset_", "make_dataset"),
        ("make_choise", "make_choice"),
    ],
)
def test_a_misspelt_part_is_refused_by_name_with_the_one_that_was_meant(name, meant):
    said = f"`{name}` of Own must make a part of Own, .*Did you mean `{meant}`.*The methods are make_actor, "
    with pytest.raises(ValueError, match=said):
        type("Own", (td3.TD3Builder,), {name: lambda self, *arguments: None})


@pytest.mark.parametrize("entry", registry.AGENTS.values(), ids=lambda entry: entry.title)
def test_an_encoder_of_ones_own_is_taken_by_every_agent(entry):
    class Own(entry.builder):
        def make_encoder(self, spec, generator):
            raise AssertionError

    assert issubclass(Own, entry.builder)


def test_a_make_method_in_a_mixin_and_on_a_builder_from_scratch_is_checked_too():
    class Mixin:
        def make_reward(self, spec):
            raise AssertionError

    with pytest.raises(ValueError, match="`make_reward` of Mixin must make a part of Own"):
        type("Own", (Mixin, sac.SACBuilder), {})
    with pytest.raises(ValueError, match="`make_adders` of Own .*Did you mean `make_adder`"):
        type("Own", (builders.AgentBuilder,), {"make_adders": lambda self: None})


def test_a_base_class_of_ones_own_adds_hooks_as_abstract_methods():
    class Base(off_policy.TransitionBuilder):
        make_size = 3  # no method

        @abc.abstractmethod
        def make_reward_model(self):
            """For subclasses."""

    own = {"make_reward_model": lambda self: None}
    assert issubclass(type("Own", (Base,), own), Base)
    with pytest.raises(ValueError, match="`make_reward_modle` of Own .*Did you mean `make_reward_model`"):
        type("Own", (Base,), {**own, "make_reward_modle": lambda self: None})


@pytest.mark.parametrize("name", ["make_objectives", "update_targets"])
def test_a_hook_that_an_agent_has_replaced_cannot_be_overridden_unless_it_is_called(name):
    """MPO makes a learner of its own."""
    own = {name: lambda self, *arguments: None}
    with pytest.raises(ValueError, match=f"`{name}` of Own must make a part of Own, but nothing calls it"):
        type("Own", (mpo.MPOBuilder,), own)
    assert issubclass(type("Own", (mpo.MPOBuilder,), {**own, "replaced_hooks": ()}), mpo.MPOBuilder)
    assert issubclass(type("Own", (td3.TD3Builder,), own), td3.TD3Builder)
