"""What holds for the learner of every agent, whatever it minimises."""

import functools
import itertools
import math
import re

import pytest
import torch
import tree

from minerva_acme import learners, testing
from minerva_acme.agents import registry

from .. import on_meta, table
from ..on_meta import META
from ..table import state_of

NAN, INF = math.nan, math.inf


@functools.cache
def batch_and_names(agent):
    """A batch for all learners of an agent, and the names of their variables."""
    scene = table.Scene(agent)
    batch = scene.make_batch()
    return batch, tuple(scene.make([batch])[0]._variables)


# The others' learners are these, but for the losses.
CONTRACT = ("mpo", "sac", "r2d2", "ppo", "vmpo")


@pytest.mark.parametrize("learner_scene", CONTRACT, indirect=True)
class TestContract(testing.LearnerConformance):
    @pytest.fixture(autouse=True)
    def _take(self, learner_scene):
        self.scene = learner_scene
        self.batch, self.names = batch_and_names(learner_scene.name)

    def make_learner(self):
        return self.scene.make(parts={"dataset": testing.RepeatedBatch(self.batch)})[0]


# Resuming, with other batches at each step and another generator in the new process.

XQC = {"critic_torso": "batch_norm", "critic_loss_steps": "all", "unit_norm_weights": True, "num_critics": 2}
MODERN = {
    "policy_average_rate": 0.3,
    "torso": "simba",
    "policy_layer_sizes": (8, 8),
    "normalize_observations": True,
    "unit_norm_weights": True,
    "weight_decay": 0.1,
    "final_learning_rate": 0.1,
}
BINS = {"critic_head": "two_hot", "vmin": -5.0, "vmax": 5.0, "num_bins": 101}
RESUMED = {
    **{name: table.Scene(name) for name in registry.AGENTS},
    "mpo, modern": table.Scene("mpo", MODERN),
    "mpo, XQC": table.Scene("mpo", {**MODERN, **XQC, **BINS}),
    "mpo, batch norm, moving": table.Scene("mpo", {**XQC, "target_rate": 0.2, "action_penalty": True}),
    "mpo, memory": table.Scene("mpo", {"memory": "gru", "burn_in": 2, "critic_loss_steps": "all"}),
    "sac, one encoder": table.Scene("sac", {"shared_encoder": True, "normalize_observations": True}),
    "td3, memory": table.Scene("td3", {"memory": "lstm", "sequence_length": 3, "sequence_period": 1}),
    "ppo, two environments": table.Scene("ppo", {"num_environments": 2, "torso": "layer_norm"}),
}
PERIODS = {"target_policy_update_period": 3, "target_critic_update_period": 2}


@pytest.mark.parametrize("case", RESUMED)
def test_a_resumed_learner_is_the_uninterrupted_one(case):
    scene = RESUMED[case]
    settings = PERIODS if scene.name in ("mpo", "d4pg") and "target_rate" not in scene.settings else {}
    batches = [scene.make_batch(seed, **settings) for seed in range(4)]
    parts = {"share_done": lambda step: step / 12}
    straight, _ = scene.make(batches, parts=parts, **settings)
    straight.run(num_steps=2)
    state = testing.through_a_file(straight.save())
    straight.run(num_steps=2)
    resumed, _ = scene.make(batches[2:], parts={**parts, "seed": 99}, **settings)
    resumed.restore(state)
    resumed.run(num_steps=2)
    testing.assert_nests_equal(resumed.save(), straight.save(), "A resumed learner must go on alike.")
    with pytest.raises(AssertionError):
        testing.assert_nests_equal(straight.save()["modules"], state["modules"])


# Batches of other origin.


def as_arrays(batch):
    """The batch as a file of numpy arrays would have it, with numbers that float32 holds in float64."""
    return tree.map_structure(
        lambda leaf: leaf.double().numpy() if leaf.is_floating_point() else leaf.numpy(), batch
    )


def test_a_learner_takes_bare_arrays_as_it_does_samples_of_tensors(learner_scene):
    batches = [learner_scene.make_batch(seed) for seed in range(2)]
    plain, _ = learner_scene.make(batches)
    own, _ = learner_scene.make(parts={"dataset": map(as_arrays, batches)})
    plain.run(num_steps=2)
    own.run(num_steps=2)
    testing.assert_nests_equal(state_of(own), state_of(plain), "Arrays must be learned from alike.")


@pytest.mark.parametrize("learner_scene", ["mpo", *table.ON_ROLLOUTS], indirect=True)
def test_a_learner_names_what_the_extras_lack(learner_scene):
    learner, _ = learner_scene.make([learner_scene.make_batch()._replace(extras=())])
    with pytest.raises(TypeError, match=r"`extras` of a batch must have `.*`, .* got \(\)"):
        learner.step()


# Optimisers.


class Still:
    """Makes optimisers of one's own, which move nothing, and keeps their rates."""

    def __init__(self, config):
        super().__init__(config)
        self.made = {}

    def make_optimizer(self, name, parameters):
        self.made[name] = [group["lr"] for group in parameters]
        return torch.optim.RMSprop([{**group, "lr": 0.0} for group in parameters])


def rates_of(config, name):
    """The learning rates that a config gives an optimiser."""
    if name == "duals":
        return [config.temperature_learning_rate, config.alpha_learning_rate]
    rate = {"alphas": "alpha_learning_rate"}.get(name, f"{name}_learning_rate")
    return [getattr(config, rate, None) or config.learning_rate]


def test_the_builders_optimisers_train_and_nothing_else_does(learner_scene):
    builder = learner_scene.builder(Still)
    batches = (learner_scene.make_batch(seed) for seed in range(2))
    learner, rows = learner_scene.make(batches, builder=builder)
    before = {name: weight.detach().clone() for name, weight in table.weights(learner).items()}
    learner.run(num_steps=2)
    testing.assert_nests_equal(
        dict(table.weights(learner)), before, "Nothing but the builder's optimisers may train."
    )
    assert builder.made.keys() == learner.updates.groups.keys() and rows[-1]["skipped_batches"] == 0
    for name, rates in builder.made.items():
        assert {*rates} == {*rates_of(builder.config, name)}, name


# Batches that are not finite: what a learner step changes is as it was before.

BEYOND_REPAIR = {
    "reward": "rewards",
    "action": "actions",
    "observation": "observations",
    "next_observation": "next observations",
    "discount": "discounts",
}
RECORDED = {
    "mpo": {"log_prob": "critic targets", "raw_action": "critic targets"},
    "ppo": {"log_prob": "recorded log-probabilities", "raw_action": "recorded actions"},
    "impala": {"log_prob": ".*", "raw_action": "recorded actions"},
    "vmpo": {
        "raw_action": "recorded actions",
        "parameters.mean": "recorded policies.*",
        "parameters.log_std": "recorded policies.*",
    },
}


def poisons(name):
    """Each field that an agent reads, numbers to spoil it by, and what is said of it."""
    fields = dict(BEYOND_REPAIR)
    if name in table.DISCRETE or name in table.ON_ROLLOUTS:
        del fields["action"]  # integers are finite, and of rollouts the raw one is read
    if name in ("mpo", "r2d2"):
        del fields["next_observation"]
    for field, message in fields.items():
        # One function looks at all fields; it tells what is not finite from what is too large.
        for value in (NAN, -INF, -1e22) if field == "reward" else (NAN,):
            yield field, value, message
    for field, message in RECORDED.get(name, {}).items():
        yield f"extras.{field}", NAN, message  # which may be infinite and right


def spoil(batch, field, value):
    """The batch with one number replaced, of the third step of the first sequence or environment."""
    index = (2, 0) if hasattr(batch, "first") else (2,) if batch.reward.ndim == 1 else (0, 2)

    def replace(nest, path):
        name, *rest = path
        if rest:
            return nest._replace(**{name: replace(getattr(nest, name), rest)})
        spoilt = getattr(nest, name).clone()
        spoilt[index + (0,) * (spoilt.ndim - len(index))] = value
        return nest._replace(**{name: spoilt})

    return replace(batch, field.split("."))


def test_a_batch_that_is_not_finite_leaves_no_trace(learner_scene, caplog):
    cases = [*poisons(learner_scene.name)]
    # TD3's policy learns in every second step: both learners must be at the same number of steps.
    settings = {"policy_period": 1} if learner_scene.name == "td3" else {}
    settings |= {"normalize_observations": True, "max_skipped_batches": len(cases)}
    good, spoilt, better, best = (learner_scene.make_batch(seed, **settings) for seed in (1, 9, 2, 3))
    bad = [spoil(spoilt, field, value) for field, value, _ in cases]
    learner, rows = learner_scene.make([good, *bad, better, best], **settings)
    other, _ = learner_scene.make([good, better, best], **settings)
    learner.step()
    other.step()
    before = state_of(learner)
    testing.assert_nests_equal(before, state_of(other), "Both must have learned the same so far.")
    for number, (field, value, _) in enumerate(cases, start=1):
        learner.step()
        assert rows[-1]["skipped_batches"] == number, (field, value)
        assert rows[-1].keys() <= {"steps", "walltime", "skipped_batches", "learning_rate"}
        trace = f"A batch that is skipped for its {field} of {value} must leave no trace."
        testing.assert_nests_equal(state_of(learner), before, trace)
    other.generator.set_state(learner.generator.get_state())
    for _ in range(2):
        learner.step()
        other.step()
        testing.assert_nests_equal(state_of(learner), state_of(other), "The next must be learned as ever.")
    with pytest.raises(AssertionError):
        testing.assert_nests_equal(state_of(learner)["modules"], before["modules"])
    assert [row["skipped_batches"] for row in rows] == [*range(len(cases) + 1), len(cases), len(cases)]
    # The field by its path in the batch and the way out, which is said once.
    said = [record.message for record in caplog.records if "skipped" in record.message]
    for step, (line, (field, value, message)) in enumerate(zip(said, cases, strict=True), start=1):
        assert re.search(f"learner step {step} skipped: the {message} are (not finite|as large as)", line)
        found = rf"\(`{re.escape(field)}\[[0-9, ]+\]` of the batch is {re.escape(f'{value:g}')}\)"
        assert re.search(found, line)
        assert ("Clip extreme rewards and observations with np.clip" in line) == (step == 1)


def test_counts_of_skipped_batches_are_restored_and_bounded_by_the_config(learner_scene):
    bad = spoil(learner_scene.make_batch(9), "reward", NAN)
    learner, _ = learner_scene.make([bad], max_skipped_batches=1)
    other, rows = learner_scene.make([learner_scene.make_batch(1), bad, bad], max_skipped_batches=1)
    learner.step()
    other.restore(testing.through_a_file(learner.save()))
    other.run(num_steps=2)
    assert [row["skipped_batches"] for row in rows] == [1, 2]
    with pytest.raises(FloatingPointError, match="2 learner steps in a row"):
        other.step()


def test_a_gradient_that_goes_wrong_makes_no_step_and_the_others_do(learner_scene, monkeypatch, caplog):
    """Of each optimiser: the first and the last of its gradients in a learner step."""
    settings = {"m_steps": 3} if learner_scene.name in ("mpo", "vmpo") else {}
    batches = [learner_scene.make_batch(seed, **settings) for seed in (1, 9, 2)]
    made, descend = [], learners.Updates.descend
    monkeypatch.setattr(
        learners.Updates, "descend", lambda self, name: made.append(name) or descend(self, name)
    )

    def steps_made(learner):
        return {
            name: max([int(state["step"]) for state in each["state"].values()], default=0)
            for name, each in state_of(learner)["optimizers"].items()
        }

    learner, rows = learner_scene.make(batches, acceleration="off", **settings)
    learner.step()
    made.clear()
    learner.step()
    usual = {name: made.count(name) for name in made}
    assert usual and rows[-1]["skipped_batches"] == 0
    for group, wrong in [(name, which) for name in usual for which in sorted({0, usual[name] - 1})]:
        learner, rows = learner_scene.make(batches, acceleration="off", **settings)
        learner.step()
        before, calls = steps_made(learner), itertools.count()
        parameter = learner.updates.groups[group].parameters()[-1]

        def hook(gradient, calls=calls, wrong=wrong):
            return torch.full_like(gradient, NAN) if next(calls) == wrong else gradient

        handle = parameter.register_hook(hook)
        caplog.clear()
        learner.step()
        handle.remove()
        after = steps_made(learner)
        # PPO ends with the epoch of the gradient, here of 4 minibatches.
        left = 3 if learner_scene.name == "ppo" and wrong == 0 else usual[group] - 1
        assert {name: after[name] - before[name] for name in usual} == {**usual, group: left}
        of_group = "" if learner_scene.name == "ppo" else f" of the {group}"
        assert f"learner step 1 skipped: the gradients{of_group} are not finite" in caplog.text
        learner.step()
        assert [row["skipped_batches"] for row in rows] == [0, 1, 1]
        for leaf in torch.utils._pytree.tree_leaves(state_of(learner)):
            assert not isinstance(leaf, torch.Tensor) or leaf.isfinite().all()


# The device: torch's meta device has no numbers, so that nothing can be read, and refuses those of a CPU.

# A path of each kind; `test_device_steps.py` goes through all agents. And what else two steps read.
ON_META = [
    ("sac", {}, 0),
    ("mpo", {"optimizer": "sgd", "m_steps": 2, "policy_loss_steps": "all"}, 2),  # how many states there are
    # How far values are apart, for a warning.
    ("mpo", {"critic_target": "one_step", "target_precision": "bfloat16", **dict.fromkeys(PERIODS, 1)}, 1),
]


@pytest.fixture
def reads(monkeypatch):
    """Every number that is read from the device is 1: all is finite, and each step of a rollout its last."""
    shapes = []

    def read(tensor):
        assert tensor.device == META
        shapes.append(tuple(tensor.shape))
        return torch.ones(tensor.shape, dtype=tensor.dtype).tolist()

    monkeypatch.setattr(learners.finite, "read", read)
    monkeypatch.setattr(learners, "read", read)
    return shapes


@pytest.mark.parametrize(("name", "settings", "others"), ON_META, ids=str)
@pytest.mark.promise("Devices")
def test_an_update_reads_its_device_once_a_gradient(name, settings, others, reads, monkeypatch):
    scene = table.Scene(name, settings)
    made, descend = [], learners.Updates.descend
    monkeypatch.setattr(
        learners.Updates, "descend", lambda self, name: made.append(name) or descend(self, name)
    )
    batch = on_meta.to_meta(scene.make_batch())
    learner, rows = scene.make([batch] * 2, parts={"device": META})
    with on_meta.Watch():
        learner.run(num_steps=2)  # targets are copied before the second
    assert len(rows) == 2 and len(made) >= 2 and len(reads) == 2 + others + len(made)


def test_the_divergence_that_ends_an_update_of_ppo_is_read_from_the_device(reads):
    scene = table.Scene("ppo", {"target_kl": 0.5, "num_epochs": 3, "minibatch_size": 8})
    batch = on_meta.to_meta(scene.make_batch())
    learner, rows = scene.make([batch], parts={"device": META})
    with on_meta.Watch():
        learner.step()
    assert rows[-1]["epochs"] == 1  # 1 was read


def test_the_device_refuses_a_tensor_of_the_cpu(reads, monkeypatch):
    """Or else the test above would prove nothing."""
    scene = table.Scene("dqn")
    batch = on_meta.to_meta(scene.make_batch())
    learner, _ = scene.make([batch._replace(reward=torch.zeros(8))], parts={"device": META})
    monkeypatch.setattr(learner._dataset, "_completed", lambda sample, *_: sample, raising=False)
    with pytest.raises(RuntimeError, match="meta"):
        learner.step()
