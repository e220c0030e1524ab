from minerva_acme import environments, testing, wrappers
from minerva_acme.environments import origin

PENDULUM = origin.Origin("Pendulum-v1", {"g": 5.0})


def make(g=5.0):
    return environments.make_training_environment("Pendulum-v1", seed=0, g=g)


def test_an_environment_by_id_knows_its_id_and_settings_but_not_its_seed():
    assert origin.of(make()) == PENDULUM


def test_another_environment_and_one_that_was_wrapped_since_have_none():
    assert origin.of(testing.FakeEnvironment()) is None
    assert origin.of(environments.make_training_environment(testing.FakeEnvironment())) is None
    assert origin.of(wrappers.StepLimitWrapper(make(), max_steps=3)) is None


def test_a_vector_has_the_origin_that_its_environments_share():
    with environments.make_vector([make, make], processes=False) as vector:
        assert origin.of(vector) == PENDULUM


def test_a_vector_of_different_environments_has_none():
    with environments.make_vector([make, lambda: make(g=9.0)], processes=False) as vector:
        assert origin.of(vector) is None
