"""Learners side by side equal one learner of the whole batch."""

import dataclasses

import numpy as np
import pytest
import torch
import tree

from minerva_acme import builders, counting, specs, testing, types
from minerva_acme.acceleration import choice
from minerva_acme.agents import impala, mpo, ppo, r2d2, sac, td3, vmpo
from tests import side_by_side

from . import transition_scene
from .mpo import scene as mpo_scene

BATCH, ENVIRONMENTS, STEPS = 6, 4, 4
OFF_POLICY = {"batch_size": BATCH, "samples_per_insert": 8.0, "min_replay_size": 6, "acceleration": "off"}
LAYERS = {"policy_layer_sizes": (8,), "critic_layer_sizes": (8, 8)}
MEMORY = {"memory": "lstm", "memory_size": 5}
ON_POLICY = {
    "acceleration": "off",
    "num_environments": ENVIRONMENTS,
    "rollout_steps": 5 * ENVIRONMENTS,
    "policy_layer_sizes": (8,),
    "value_layer_sizes": (8,),
    "learning_rate": 1e-2,
    "max_grad_norm": 0.5,
    "normalize_advantages": True,
}
MPO = {
    **OFF_POLICY,
    **LAYERS,
    "num_samples": 7,
    "retrace_mc_actions": 5,
    "normalize_observations": True,
    "policy_learning_rate": 1e-2,
    "critic_learning_rate": 1e-2,
    "max_grad_norm": 0.2,
    "target_policy_update_period": 3,
    "target_critic_update_period": 2,
}


class Scene:
    """An agent, and its batches in float64."""

    axis = 0  # of the shares in a batch
    whole = BATCH
    num_minibatches = 0

    @staticmethod
    def count_states(batch):
        """The states, by share, in which a policy is improved, if not one for each row."""
        return ()

    def __init__(self, builder, spec, make_batch):
        self.builder, self.spec, self.make_batch = builder, spec, make_batch

    def learn(self, ranks, num_steps=STEPS, spoil=lambda step, batch: batch, builder=None):
        """Learns from the whole of each batch, or from a share; returns the learner and what it logs."""
        builder = builder or (self.builder if ranks is None else self.builder.for_learners(ranks.size))

        batches = [spoil(step, self.make_batch(step)) for step in range(num_steps)]
        logger = testing.FakeLogger()
        learner = builder.make_learner(
            builders.LearnerParts(
                networks=builder.make_networks(self.spec, torch.Generator().manual_seed(0)),
                dataset=(
                    transition_scene.Sample(side_by_side.rows(batch, ranks, self.axis)) for batch in batches
                ),
                spec=self.spec,
                counter=counting.Counter(),
                logger=logger,
                generator=torch.Generator().manual_seed(0),
                device=torch.device("cpu"),
                ranks=ranks,
            )
        )
        for module in learner._modules.values():
            module.double()
        for step in range(num_steps):
            states = self.count_states(batches[step])
            with side_by_side.WholeNoise(ranks, self.whole, self.num_minibatches, seed=step, states=states):
                learner.step()
        return learner, logger.rows


def make_states(*shape):
    """Recurrent states of `MEMORY`, as if an actor had recorded them."""
    generator = torch.Generator().manual_seed(1)
    return tuple(torch.rand(*shape, MEMORY["memory_size"], generator=generator) for _ in range(2))


def doubled(nest):
    return tree.map_structure(lambda x: x.double() if x.is_floating_point() else x, nest)


def make_sac():
    builder = sac.SACBuilder(sac.SACConfig(**OFF_POLICY, **LAYERS, learning_rate=1e-2))
    spec = transition_scene.make_spec()
    return Scene(
        builder, spec, lambda seed: transition_scene.make_batch(spec, seed, BATCH, dtype=torch.float64)
    )


def make_mpo(**changes):
    def make_batch(seed):
        # One share has many steps that did not happen, the other few.
        number = torch.tensor([1, 4, 1, 4, 4, 3]).roll(seed)[:, None]
        mask = (torch.arange(4) < number).double()
        state = make_states(BATCH) if "memory" in changes else ()
        batch = mpo_scene.make_trajectory(BATCH, 4, seed, mask=mask, state=state)
        return doubled(batch._replace(action=batch.action.clamp(low, high)))

    spec = transition_scene.make_spec()
    low, high = map(torch.from_numpy, specs.bounds(spec.actions))
    builder = mpo.MPOBuilder(mpo.MPOConfig(**(MPO | changes)))
    scene = Scene(builder, spec, make_batch)
    if builder.config.policy_loss_steps == "all":
        scene.count_states = lambda batch: [int(share.sum()) for share in batch.mask.tensor_split(2)]
    return scene


@pytest.fixture
def make_on_policy(make_rollout, continuous_spec):
    def make(builder, num_minibatches=0):
        actor = builder.with_config(dataclasses.replace(builder.config, memory="none"))
        network = actor.make_networks(continuous_spec, torch.Generator().manual_seed(3))

        def make_batch(seed):
            rollout = make_rollout(actor, network, continuous_spec, seed)
            if builder.config.memory != "none":
                extras = rollout.extras._replace(state=make_states(*rollout.reward.shape))
                rollout = rollout._replace(extras=extras)
            return doubled(rollout)

        scene = Scene(builder, continuous_spec, make_batch)
        scene.axis, scene.whole, scene.num_minibatches = 1, ENVIRONMENTS, num_minibatches
        return scene

    return make


@pytest.fixture(
    params=[
        "sac",
        "mpo in all states",
        "mpo with memory",
        "ppo",
        "ppo with memory",
        "impala with memory",
    ]
)
def scene(request, make_on_policy):
    agent, memory = request.param.split()[0], MEMORY if "memory" in request.param else {}
    if agent == "ppo":
        config = ppo.PPOConfig(**ON_POLICY, **memory, minibatch_size=10, num_epochs=4, target_kl=0.02)
        return make_on_policy(ppo.PPOBuilder(config), num_minibatches=2)
    if agent == "impala":
        return make_on_policy(impala.IMPALABuilder(impala.IMPALAConfig(**ON_POLICY, **memory)))
    if agent == "mpo":
        policy = "all" if "all states" in request.param else "first"
        return make_mpo(**memory, critic_loss_steps="all" if memory else "first", policy_loss_steps=policy)
    return make_sac()


def numbers(learner):
    """All that a learner saves that is a number, but its random state."""
    state = learner.save()
    return [x for x in tree.flatten([state["modules"], state["updates"]]) if isinstance(x, torch.Tensor)]


def assert_close(one, other):
    one, other = (torch.cat([x.double().flatten() for x in numbers(each)]) for each in (one, other))
    torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-10)


@pytest.mark.promise("Two learners of half a batch equal one of the whole")
def test_two_learners_of_half_a_batch_equal_one_of_the_whole(scene, tmp_path):
    whole, expected = scene.learn(None)
    (first, rows), (second, _) = side_by_side.together(tmp_path / "ranks", scene.learn)
    assert_close(first, whole)
    assert all(torch.equal(a, b) for a, b in zip(numbers(first), numbers(second), strict=True))
    norms = [name for name in expected[0] if name.startswith("grad_norm")]
    assert norms and [row["skipped_batches"] for row in rows] == [0] * STEPS
    for row, wanted in zip(rows, expected, strict=True):  # the norm that gradients are clipped by
        assert [float(row[name]) for name in norms] == pytest.approx([float(wanted[name]) for name in norms])
    if "epochs" in expected[0]:  # the early stop is that of all
        assert [row["epochs"] for row in rows] == [row["epochs"] for row in expected]
        assert len({row["epochs"] for row in expected}) > 1


@pytest.mark.parametrize(
    ("agent", "line"),
    [
        ("mpo", "updates: one by one: several learners make them together"),
        ("ppo", "PPO's updates: autograd: several learners average their gradients"),
    ],
)
def test_with_acceleration_learners_still_make_every_step_together(
    agent, line, make_on_policy, tmp_path, said, threads_are_given_back, monkeypatch
):
    """A single learner would update MPO's critic and policy at once, or PPO's network on arrays."""
    config = ppo.PPOConfig(**ON_POLICY, minibatch_size=10, num_epochs=2)
    scene = make_mpo() if agent == "mpo" else make_on_policy(ppo.PPOBuilder(config), num_minibatches=2)
    whole, _ = scene.learn(None)
    builder = scene.builder
    scene.builder = builder.with_config(dataclasses.replace(builder.config, acceleration="auto"))
    torch.set_num_threads(2)
    monkeypatch.setattr(choice, "_TINY_UPDATE", 0)  # as if the networks here gained from two threads
    (first, _), (second, _) = side_by_side.together(tmp_path / "ranks", scene.learn, timeout_seconds=20.0)
    assert_close(first, whole)
    assert all(torch.equal(a, b) for a, b in zip(numbers(first), numbers(second), strict=True))
    assert line in said()


def spoil(step, batch):
    """Puts a number into one row: 1e17 is finite, but not the norm of the gradients."""
    if step in (1, 3):
        value, row = {1: (np.nan, -1), 3: (1e17, 0)}[step]
        field = batch.reward if batch.reward.ndim == 1 else batch.reward[:, 0]
        if isinstance(batch, types.Rollout):
            field = batch.reward[0]
        field[row] = value
    return batch


# A memory changes the networks alone, and the first states of MPO the number of its rows.
@pytest.mark.parametrize("scene", ["sac", "mpo in all states", "ppo", "impala with memory"], indirect=True)
def test_all_skip_a_batch_that_is_not_finite_for_one(scene, tmp_path, caplog):
    whole, expected = scene.learn(None, 5, spoil)
    caplog.clear()
    (first, rows), (second, _) = side_by_side.together(
        tmp_path / "ranks", lambda ranks: scene.learn(ranks, 5, spoil), timeout_seconds=20.0
    )
    assert_close(first, whole)
    assert all(torch.equal(a, b) for a, b in zip(numbers(first), numbers(second), strict=True))
    assert [row["skipped_batches"] for row in rows] == [row["skipped_batches"] for row in expected]
    assert rows[1]["skipped_batches"] == 1
    said = [record.getMessage() for record in caplog.records if "skipped" in record.getMessage()]
    of_nan = [line for line in said if "step 1 skipped" in line]
    assert sum("the share of learner 1 is not finite" in line for line in of_nan) == 1, said
    assert len(of_nan) == 2


def test_learners_that_go_on_from_one_state_are_the_same_and_draw_other_noise(tmp_path):
    scene = make_sac()
    (first, _), _ = side_by_side.together(tmp_path / "before", lambda ranks: scene.learn(ranks, 3))
    state = testing.through_a_file(first.save())

    def go_on(ranks):
        learner, _ = scene.learn(ranks, 0)
        learner.restore(state)
        noise = torch.randn(3, generator=learner.generator)
        return noise, learner

    (noise, one), (other_noise, other) = side_by_side.together(tmp_path / "after", go_on)
    assert all(torch.equal(a, b) for a, b in zip(numbers(one), numbers(other), strict=True))
    assert all(torch.equal(a, b) for a, b in zip(numbers(one), numbers(first), strict=True))
    assert not torch.isclose(noise, other_noise).any()


def test_networks_that_differ_are_refused(tmp_path):
    scene = make_sac()

    def learn(ranks):
        learner, _ = scene.learn(ranks, 0)
        with torch.no_grad():
            next(learner._modules["critic"].parameters()).add_(ranks.rank)
        scene_batch = side_by_side.rows(scene.make_batch(0), ranks)
        learner._dataset = iter([transition_scene.Sample(scene_batch)])
        learner.step()

    results = side_by_side.together(tmp_path / "ranks", learn, may_fail=True)
    for result in results:
        with pytest.raises(ValueError, match="must be the same in all learners"):
            raise result


@pytest.mark.parametrize(
    ("builder", "message"),
    [
        (vmpo.VMPOBuilder(vmpo.VMPOConfig()), "V-MPO must be trained by one learner, got 2"),
        (sac.SACBuilder(sac.SACConfig(prioritized=True)), "`prioritized` of SAC cannot be True with 2"),
        (sac.SACBuilder(sac.SACConfig(acceleration="compile")), "`acceleration` of SAC cannot be compile"),
        (sac.SACBuilder(sac.SACConfig(memory="lstm")), "`memory` of SAC must be none with 2 learners"),
        (sac.SACBuilder(sac.SACConfig(batch_size=255)), "`batch_size` must be a multiple of the 2 learners"),
        (td3.TD3Builder(td3.TD3Config(bc_alpha=2.5)), "`bc_alpha` of TD3 cannot be 2.5 with 2 learners"),
        (mpo.MPOBuilder(mpo.MPOConfig(critic_torso="batch_norm")), "`critic_torso` of MPO cannot be batch_n"),
        (r2d2.R2D2Builder(r2d2.R2D2Config()), "`prioritized` of R2D2 cannot be True with 2 learners"),
        (ppo.PPOBuilder(ppo.PPOConfig(minibatch_size=63)), "`minibatch_size` must be a multiple of the 2"),
        (ppo.PPOBuilder(ppo.PPOConfig(minibatch_size=2)), "A share of one of 2 learners is too small: `mini"),
        (ppo.PPOBuilder(ppo.PPOConfig(num_environments=1)), "`num_environments` must be a multiple of the 2"),
    ],
)
def test_what_needs_the_whole_batch_is_refused_by_name(builder, message):
    with pytest.raises(ValueError, match=message):
        builder.for_learners(2)


def test_a_share_is_a_part_of_every_batch():
    builder = make_sac().builder.for_learners(3)
    assert (builder.num_learners, builder.config.batch_size) == (3, 2)
    config = ppo.PPOConfig(minibatch_size=64, num_environments=1)
    shared = ppo.PPOBuilder(config).for_actors(4).for_learners(2)
    assert shared.config.minibatch_size == 32 and shared.num_learner_steps(8 * config.rollout_steps) == 2
