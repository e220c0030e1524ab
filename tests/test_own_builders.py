"""A method of a builder that would have no effect is refused where it is defined."""

import abc
import functools

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
    said = f"`{name}` of Own must make a part of Own .*Did you mean `{meant}`.*The methods are make_actor, "
    with pytest.raises(ValueError, match=said):
        type("Own", (td3.TD3Builder,), {name: lambda self, *arguments: None})


@pytest.mark.parametrize("builder", [off_policy.TransitionBuilder, off_policy.SequenceBuilder])
def test_an_encoder_where_no_part_asks_for_one_is_refused(builder):
    with pytest.raises(ValueError, match="`make_encoder` of Own must make a part of Own or be used by it"):

        class Own(builder):
            def make_encoder(self, spec, generator):
                raise AssertionError


@pytest.mark.parametrize("entry", registry.AGENTS.values(), ids=lambda entry: entry.title)
def test_an_encoder_where_a_part_asks_for_one_is_taken(entry):
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


def test_make_methods_of_ones_own_that_something_uses_are_taken():
    class Base(off_policy.TransitionBuilder):
        @abc.abstractmethod
        def make_reward_model(self):
            """For subclasses alone."""

        def make_networks(self, spec, generator):
            return [make() for make in (lambda: self.make_torso(spec), self.make_head)]

        def make_torso(self, spec):
            return self.make_size

        @staticmethod
        def make_head():
            return None

        @property
        def make_size(self):  # no method
            return 3

    class Own(Base):
        def make_reward_model(self):
            return functools.partial(self.make_label)

        @classmethod
        def make_label(cls):
            return "label"

    assert issubclass(Own, off_policy.TransitionBuilder)


@pytest.mark.parametrize("name", ["make_objectives", "update_targets"])
def test_an_override_whose_caller_is_overridden_is_refused(name):
    """MPO makes a learner of its own."""
    said = f"`{name}` of Own must have an effect, but nothing calls it: only `make_learner` of a base class"
    with pytest.raises(ValueError, match=said):
        type("Own", (mpo.MPOBuilder,), {name: lambda self, *arguments: None})


def make_by(builder, parts):
    return builder.make_objectives(parts.spec)


def without_wraps(method):
    return lambda *arguments: method(*arguments)


@pytest.mark.parametrize(
    "make_learner",
    [
        lambda self, parts: make_by(self, parts),
        lambda self, parts: getattr(self, "make_objectives")(parts.spec),  # noqa: B009
        lambda self, parts: (lambda: make_by(self, parts))(),
        without_wraps(lambda self, parts: self.make_objectives(parts.spec)),
        functools.partialmethod(make_by, None),
    ],
)
def test_an_override_may_be_called_by_what_is_handed_the_builder(make_learner):
    own = {"make_learner": make_learner, "make_objectives": lambda self, spec: {}}
    assert issubclass(type("Own", (td3.TD3Builder,), own), td3.TD3Builder)
    assert issubclass(type("Own", (mpo.MPOBuilder,), own), mpo.MPOBuilder)


def test_an_override_that_its_overridden_caller_does_not_call_is_refused():
    class Without(td3.TD3Builder):
        def make_learner(self, parts):
            return None

    class With(td3.TD3Builder):
        def make_learner(self, parts):
            return super().make_learner(parts)

    own = {"make_optimizer": lambda self, name, parameters: None, "learner_class": object}
    assert issubclass(type("Own", (With,), own), With)
    with pytest.raises(ValueError, match="`learner_class` of Own must have an effect"):
        type("Own", (Without,), own)
    calls = {**own, "make_learner": lambda self, parts: self.learner_class(parts)}
    assert issubclass(type("Own", (Without,), calls), Without)
