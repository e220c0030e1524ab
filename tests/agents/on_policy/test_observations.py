"""Observations of any nest and rank: PPO and V-MPO see every leaf, and learn from it."""

import numpy as np
import pytest
import torch
import tree

from minerva_acme import networks, runs, specs, testing, wrappers

from .. import showing
from ..conftest import PPO, VMPO

SETTINGS = {
    "ppo": {"minibatch_size": 64, "num_epochs": 4},
    "vmpo": {"m_steps": 10},
}


def make_builder(agent, *mixins, **options):
    return agent.recording(
        *mixins,
        **{
            "policy_layer_sizes": (64,),
            "value_layer_sizes": (64,),
            "num_environments": 8,
            "rollout_steps": 256,
            "learning_rate": 3e-3,
            "anneal_learning_rate": False,
            "discount": 0.0,
            **SETTINGS[agent.name],
            **options,
        },
    )


def shows(spec, discrete=True):
    return lambda seed: showing.Showing(spec, discrete=discrete, seed=seed)


@pytest.mark.parametrize(
    ("spec", "discrete", "num_env_steps"),
    [
        pytest.param(showing.IMAGE, True, 768, id="image"),
        pytest.param(
            showing.IMAGE, False, 1024, id="image and continuous actions", marks=pytest.mark.learning
        ),
        pytest.param(showing.DICT, True, 2048, id="dict", marks=pytest.mark.learning),
    ],
)
@pytest.mark.parametrize(
    "agent", [pytest.param(PPO, id="ppo"), pytest.param(VMPO, id="vmpo", marks=pytest.mark.learning)]
)
@pytest.mark.promise("Spaces")
def test_what_is_seen_is_acted_upon_after_a_short_training(agent, run, spec, discrete, num_env_steps):
    builder = make_builder(agent)
    result = run(
        builder, shows(spec, discrete), num_env_steps, evaluation_episodes=20, replay="memory", seed=1
    )
    assert result.random.mean < 2.0 and result.before.mean < 3.0
    # Of 5. Blind to the image it would be 2.3 at most, and 2.5 in the dict blind to any of three leaves.
    assert result.after.mean > 4.0
    # Actor and learner see the same: they agree on the policy, whatever came in between.
    if agent == PPO:
        assert max(row["policy/approx_kl_first"] for row in builder.rows) < 1e-6


def test_images_are_bytes_until_the_encoder_sees_them(agent, run):
    builder = make_builder(agent, policy_layer_sizes=(8,), value_layer_sizes=(8,), rollout_steps=64)
    run(builder, shows(showing.DICT), 64)
    learner, seen = builder.learner, []
    (image_encoder,) = (m for m in learner.network.modules() if isinstance(m, networks.ImageEncoder))
    image_encoder.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    batch = learner._preparer.prepare(builder.rollouts[0])
    assert {image.dtype for image in (*seen, batch.observation["camera"])} == {torch.uint8}
    for name in ("observation", "next_observation"):
        for leaf, leaf_spec in zip(
            tree.flatten(getattr(builder.rollouts[0], name)), tree.flatten(showing.DICT), strict=True
        ):
            assert leaf.shape == (8, 8, *leaf_spec.shape)
            assert leaf.numpy().dtype == leaf_spec.dtype


def test_statistics_are_of_the_numbers_of_a_nest_and_not_of_images_and_choices(agent, run):
    builder = make_builder(agent, rollout_steps=64)
    run(builder, shows(showing.DICT), 64 * 2)
    normalizer = builder.learner.network.normalizer
    seen = [tree.map_structure(lambda leaf: leaf.flatten(0, 1), r.observation) for r in builder.rollouts]
    seen = tree.map_structure(lambda *leaves: torch.cat(leaves), *seen)
    state = normalizer.state_dict()
    joints, touch = seen["joints"][0], seen["touch"].float().flatten(1)
    indices = [int(name.split(".")[1]) for name in state if name.endswith(".mean")]
    assert indices == [2, 3, 4]  # camera, gear, joints[0], joints[1], touch
    torch.testing.assert_close(state["leaves.2.mean"], joints.mean(dim=0), rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(state["leaves.4.mean"], touch.mean(dim=0), rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(state["leaves.4.var"], touch.var(dim=0, correction=0), rtol=1e-3, atol=1e-3)
    normalized = normalizer(seen)
    assert normalized["camera"] is seen["camera"] and normalized["gear"] is seen["gear"]
    assert normalized["joints"][0].abs().max() < 5.0


@pytest.mark.parametrize("normalizes", [False, True])
def test_a_dict_of_one_vector_learns_as_the_vector_does(agent, run, normalizes):
    """One leaf in a nest is the same numbers by other ways."""

    def in_a_dict(seed):
        fake = testing.FakeEnvironment(seed=seed)
        return wrappers.ObservationTransformWrapper(
            fake, transform=lambda vector: {"it": vector}, spec={"it": fake.observation_spec()}
        )

    states = []
    for make_environment in (lambda seed: testing.FakeEnvironment(seed=seed), in_a_dict):
        builder = agent.recording(acceleration="off", normalize_observations=normalizes)
        run(builder, make_environment, 32)
        state = builder.learner.get_variables(["network"])[0]
        states.append({name.replace("leaves.0.", ""): value for name, value in state.items()})
    testing.assert_nests_equal(states[0], states[1], "They must be the same bit for bit.")


def test_an_encoder_of_ones_own_is_one_method(agent, run):
    class Brightest(networks.Encoder):
        output_size = 8

        def forward(self, observation):
            return observation.float().mean(dim=(-3, -1)) / 255.0

    class Mixin:
        def make_encoder(self, spec, generator):
            return Brightest()

    builder = make_builder(agent, Mixin, rollout_steps=64)
    run(builder, shows(showing.IMAGE), 128, replay="memory")
    encoder, (rollout, _) = builder.learner.network.encoder, builder.rollouts
    assert isinstance(encoder, Brightest)
    policy = builder.learner.network.policy(rollout.observation)
    assert policy.logits.flatten(0, 1).std(dim=0).min() > 0.0


def test_a_policy_of_images_and_nests_is_loaded_and_exported(agent, run):
    make = shows(showing.DICT)
    directory = run(make_builder(agent, rollout_steps=64), make, 64, replay="memory").directory
    timesteps = [make(seed).reset() for seed in range(5)]
    observations = tree.map_structure(lambda *rows: np.stack(rows), *(t.observation for t in timesteps))
    builder = agent.builder(policy_layer_sizes=(64,), value_layer_sizes=(64,), num_environments=8)
    policy = runs.load_policy(directory, builder, make(0))
    expected = policy.batch(observations).action
    program = torch.export.export(policy.as_module(), (tree.map_structure(torch.from_numpy, observations),))
    found = program.module()(tree.map_structure(torch.from_numpy, observations))
    np.testing.assert_array_equal(found.numpy(), expected)
    for row, timestep in enumerate(timesteps):
        assert policy(timestep.observation).action == expected[row]


def test_it_is_said_that_an_encoder_takes_the_plain_way(agent, run, said):
    run(make_builder(agent, rollout_steps=64), shows(showing.IMAGE), 64)
    lines = said()
    assert "acting: torch: ImageEncoder is not supported" in lines
    assert "PPO's updates: autograd: ImageEncoder is not exactly IdentityEncoder" in lines
    assert "acting: arrays" not in lines


@pytest.mark.parametrize(
    ("observations", "message"),
    [
        ((), r"needs observations of at least one number, got a nest, \(\)\. Give the environment an"),
        (
            {"name": specs.StringArray(()), "a": specs.Array((2,), np.float32)},
            r"needs observations that are numbers, got StringArray\(\) object as `observation\['name'\]`. "
            "Turn it into numbers, or leave it out, in a wrapper",
        ),
        (specs.Array((2,), np.complex64), r"that are numbers, got Array\(2,\) complex64 as `observation`"),
        (
            (specs.Array((), np.float32), specs.Array((3,), np.float64)),
            r"in float32 or in integers, got Array\(3,\) float64 as `observation\[1\]`.*SinglePrecision",
        ),
        (specs.Array((0, 2), np.float32), r"that hold numbers, got Array\(0, 2\) float32 as `observation`"),
    ],
)
def test_what_is_no_number_is_refused_by_the_name_of_its_leaf(agent, spec, observations, message):
    with pytest.raises(ValueError, match=f"^PPO needs .*{message.removeprefix('needs ')}"):
        agent.builder().check_spec(spec._replace(observations=observations))
