"""Whole runs on a GPU, by `make test-gpu`: they learn, resume exactly, and act without waiting for it."""

import contextlib
import dataclasses
import warnings

import pytest
import torch

from minerva_acme import experiments, testing
from minerva_acme.agents import sac
from minerva_acme.learners import finite
from minerva_acme.runs import checkpointing
from tests.agents.mpo import test_memory
from tests.agents.test_acting_on_tensors import playing
from tests.environments import test_batched_brax
from tests.learners import test_batches_and_optimizers

from . import test_batched as batched
from . import test_data, test_recorded_runs
from . import test_exact_resume as exact

pytestmark = pytest.mark.gpu

GPU = torch.device("cuda", 0)
FLAT = (
    "mpo",
    "mpo, 3 environments with memory",
    "ppo, 4 cartpoles",
    "ppo, 2 environments with memory amid episodes",
    "v-mpo, 4 environments",
    "impala, 4 environments",
    "sac, n-step",
    "sac with memory amid episodes",
    "td3, prioritised",
    "d4pg, amid episodes",
    "dqn, prioritised",
    "r2d2, 3 environments",
)
SAC_WITH_MEMORY = sac.SACBuilder(dataclasses.replace(exact.SAC.config, **exact.OVER_SEQUENCES, n_step=1))
CASES = {
    **exact.CASES,
    "td3, prioritised": (exact.TD3, exact.Wanderer),
    "mpo": (exact.MPO, exact.Wanderer),
    "sac with memory amid episodes": (SAC_WITH_MEMORY, exact.make_long),
}
BATCHED = [*batched.CASES]

data, recording = test_recorded_runs.data, test_data.recording  # fixtures


def make_fakes(seed):
    generator = torch.Generator(GPU).manual_seed(seed)
    return testing.FakeBatchedEnvironment(batched.B, generator=generator, device=GPU)


def make_discrete(seed):
    return batched.DiscretePendulum(seed, device=GPU)


def make_walks(seed):
    return test_batched_brax.make(seed, test_batched_brax.PlainWalk(), batched.B, device=GPU)


ON_GPU = {batched.DiscretePendulum: make_discrete, batched.make_walks: make_walks}


def on_gpu(name):
    """The builder of a case of batched environments, and what makes those on the GPU."""
    builder, factory = batched.CASES[name]
    return builder, ON_GPU.get(factory, make_fakes)


@pytest.mark.parametrize("case", FLAT)
def test_a_run_that_is_killed_becomes_the_run_that_was_not(tmp_path, case):
    builder, factory = CASES[case]
    settings = {"environment_factory": factory, "device": "cuda"}
    straight = tmp_path / "straight"
    kills = exact.Kills(straight, tmp_path, lags=(4,))
    result = experiments.run_experiment(exact.make_config(straight, builder, **settings), kills)
    assert result.learner_steps > 3
    folder = kills.folders[len(kills.folders) // 2]
    experiments.run_experiment(exact.make_config(folder, builder, **settings))
    exact.assert_equal(folder, straight, builder, factory)


@pytest.mark.parametrize("devices", [("cuda", "cpu"), ("cpu", "cuda")], ids="-".join)
@pytest.mark.parametrize("case", FLAT)
def test_a_run_continues_on_another_device(tmp_path, case, devices):
    builder, factory = CASES[case]
    learner_steps = []
    for device, share in zip(devices, (2, 1), strict=True):
        config = exact.make_config(
            tmp_path,
            builder,
            environment_factory=factory,
            device=device,
            num_env_steps=exact.NUM_STEPS * builder.num_environments // share,
        )
        learner_steps.append(experiments.run_experiment(config).learner_steps)
    assert 0 < learner_steps[0] < learner_steps[1]


@pytest.mark.parametrize("devices", [("cuda", "cpu"), ("cpu", "cuda")], ids="-".join)
@pytest.mark.parametrize("case", ["mpo", "sac", "sac, by JAX", "d4pg", "ppo"])
def test_a_batched_run_continues_on_another_device(tmp_path, case, devices):
    learner_steps = []
    for device, num_steps in zip(devices, (18, 36), strict=True):
        builder, factory = on_gpu(case) if device == "cuda" else batched.CASES[case]
        settings = {"device": device, "num_env_steps": num_steps * batched.B}
        result = experiments.run_experiment(batched.make_config(tmp_path, builder, factory, **settings))
        learner_steps.append(result.learner_steps)
    assert 0 < learner_steps[0] < learner_steps[1]


@pytest.mark.parametrize("case", BATCHED)
def test_a_batched_run_that_is_killed_becomes_the_run_that_was_not(tmp_path, case):
    builder, factory = on_gpu(case)
    straight = tmp_path / "straight"
    kills = exact.Kills(straight, tmp_path, lags=(4,))
    result = experiments.run_experiment(batched.make_config(straight, builder, factory, device="cuda"), kills)
    assert result.learner_steps > 3
    folder = kills.folders[len(kills.folders) // 2]
    experiments.run_experiment(batched.make_config(folder, builder, factory, device="cuda"))
    exact.assert_equal(folder, straight, builder.for_batches(GPU), factory)


@pytest.mark.parametrize("name", test_recorded_runs.BUILDERS)
def test_a_run_on_recorded_data_that_is_stopped_becomes_the_run_that_was_not(tmp_path, data, name):
    test_recorded_runs.check_that_a_stopped_run_becomes_the_run_that_was_not(
        tmp_path, test_recorded_runs.BUILDERS[name], data, device="cuda"
    )


@pytest.mark.parametrize("devices", [("cuda", "cpu"), ("cpu", "cuda")], ids="-".join)
@pytest.mark.parametrize("name", test_recorded_runs.BUILDERS)
def test_a_run_on_recorded_data_continues_on_another_device(tmp_path, data, name, devices):
    builder, learned = test_recorded_runs.BUILDERS[name], []
    for device, stop in zip(devices, ([test_recorded_runs.stop_at(3)], []), strict=True):
        config = test_recorded_runs.make_config(tmp_path, builder, data, device=device)
        learned.append(experiments.run_experiment(config, *stop).learner_steps)
    assert learned == [3, test_recorded_runs.NUM_STEPS]


@pytest.mark.parametrize("builder", [exact.MPO_OF_TODAY, exact.TD3], ids=["mpo", "td3"])
def test_a_killed_run_with_demonstrations_becomes_the_run_that_was_not(tmp_path, recording, builder):
    def config(folder):
        demonstrations = {"demonstrations": str(recording / "data"), "final_demonstration_share": 0.0}
        return exact.make_config(folder, builder, device="cuda", **demonstrations)

    straight = tmp_path / "straight"
    kills = exact.Kills(straight, tmp_path, lags=(4,))
    assert experiments.run_experiment(config(straight), kills).learner_steps > 3
    folder = kills.folders[len(kills.folders) // 2]
    experiments.run_experiment(config(folder))
    exact.assert_equal(folder, straight, builder, exact.Wanderer)


@pytest.mark.parametrize("kind", ["adam", "sgd"])
def test_a_slice_of_a_wider_tensor_is_trained_and_nothing_beside_it(kind):
    test_batches_and_optimizers.check_that_a_slice_is_trained_and_nothing_beside_it(kind, 0.1, GPU)


class RemembersFeatures(sac.SACBuilder):
    def make_memory(self, input_size, generator):
        return test_memory.Doubled(input_size)  # which begins on the CPU


@pytest.mark.parametrize("is_stored", [True, False])
def test_a_memory_of_your_own_may_begin_on_the_cpu(tmp_path, is_stored):
    config = dataclasses.replace(SAC_WITH_MEMORY.config, stored_state=is_stored)
    result = experiments.run_experiment(
        exact.make_config(tmp_path, RemembersFeatures(config), device="cuda", num_env_steps=60)
    )
    assert result.learner_steps > 0


@contextlib.contextmanager
def waits(mode):
    """Torch warns of ("warn") or refuses ("error") what waits for the GPU."""
    with warnings.catch_warnings(action="ignore"):  # that this is a prototype
        torch.cuda.set_sync_debug_mode(mode)
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("case", BATCHED)
def test_acting_and_sampling_never_wait_for_the_gpu_and_learning_where_it_reads(case):
    builder, factory = on_gpu(case)
    with contextlib.ExitStack() as stack:
        played = stack.enter_context(playing(builder, factory(0), torch.Generator(GPU).manual_seed(1)))
        (table,) = played.builder.make_replay_tables(played.spec)
        sampler = stack.enter_context(played.client.sampler(table.name))
        sampler.sample_batch(batched.B)
        with waits("error"):
            for _ in range(20):
                played.loop.step()
            sampler.sample_batch(batched.B)
        played.adder.reset()
        dataset = played.builder.make_dataset(played.client, played.spec, GPU)
        stack.enter_context(contextlib.closing(dataset))
        learner = played.make_learner(dataset, torch.Generator(GPU).manual_seed(2))
        if case not in ("ppo", "v-mpo"):  # of which a rollout would be gone
            learner.step()  # MPO compares its target critic's two ways
        with waits("warn"), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            learner.step()
    places = {each.filename for each in caught if "synchronizing" in str(each.message)}
    assert places == {finite.__file__}


def test_behaviour_cloning_computes_on_a_gpu_what_it_computes_on_a_cpu(tmp_path, data):
    builder, found = test_recorded_runs.BUILDERS["bc"], []
    for device in ("cpu", "cuda"):
        experiments.run_experiment(
            test_recorded_runs.make_config(tmp_path / device, builder, data, device=device)
        )
        found.append([float(row["loss/policy"]) for row in exact.rows(tmp_path / device, "learner")])
    assert len(found[0]) == test_recorded_runs.NUM_STEPS
    assert found[1] == pytest.approx(found[0], rel=1e-4)


@pytest.mark.parametrize("case", ["dqn, prioritised", "r2d2, 3 environments"])
def test_a_learner_computes_on_a_gpu_what_it_computes_on_a_cpu(tmp_path, case):
    builder, factory = CASES[case]
    found = {}
    for device in ("cpu", "cuda"):
        config = exact.make_config(
            tmp_path / device,
            builder,
            environment_factory=factory,
            device=device,
            num_env_steps=80 * builder.num_environments,
        )
        experiments.run_experiment(config)
        found[device] = exact.rows(tmp_path / device, "learner")[0]
    assert found["cpu"] and found["cpu"].keys() == found["cuda"].keys()
    for name in found["cpu"]:
        if name.startswith(("loss", "q/")):
            assert float(found["cuda"][name]) == pytest.approx(float(found["cpu"][name]), rel=1e-4, abs=1e-6)


@pytest.mark.parametrize(
    "case", ["sac, n-step", "td3, prioritised", "d4pg, amid episodes", "dqn, prioritised"]
)
def test_compiled_losses_train_on_a_gpu_as_plain_ones(tmp_path, case):
    builder, factory = CASES[case]
    found, ways = {}, {}
    for mode in ("off", "compile"):
        config = exact.make_config(
            tmp_path / mode,
            builder.with_config(dataclasses.replace(builder.config, acceleration=mode)),
            environment_factory=factory,
            device="cuda",
            num_env_steps=80,
        )
        experiments.run_experiment(config)
        found[mode] = exact.rows(tmp_path / mode, "learner")[:2]  # TD3's policy learns in every second step
        newest = checkpointing.Checkpointer(tmp_path / mode / "checkpoints").latest()
        ways[mode] = checkpointing.load_state(newest)["learner"].get("ways", {})
    assert not ways["off"] and {*ways["compile"].values()} == {"compiled"}
    for plain, compiled in zip(found["off"], found["compile"], strict=True):
        for name in plain:
            if name.startswith(("loss", "q/")) and plain[name]:
                assert float(compiled[name]) == pytest.approx(float(plain[name]), rel=1e-3, abs=1e-5)
