"""What was recorded fills replay as playing did."""

import dm_env
import numpy as np
import pytest
import torch
import tree

from minerva_acme import core, counting, datasets, distributions, environments, replay, specs, testing
from minerva_acme.agents import dqn, mpo, ppo, sac, td3, vmpo
from minerva_acme.losses import retrace_targets
from minerva_acme.replay import backends
from tests.datasets.conftest import DISCRETE, SPEC, Wanderer

SMALL = {"critic_layer_sizes": (4,), "batch_size": 4, "min_replay_size": 1}
SEQUENCES = {**SMALL, "policy_layer_sizes": (4,), "sequence_length": 3}
BUILDERS = {
    "mpo, sequences": (mpo.MPOBuilder(mpo.MPOConfig(**SEQUENCES)), SPEC),
    "mpo, sequences that begin every second step": (
        mpo.MPOBuilder(mpo.MPOConfig(**SEQUENCES, sequence_period=2)),
        SPEC,
    ),
    "mpo, with the sum of rewards so far": (
        mpo.MPOBuilder(
            mpo.MPOConfig(
                **SEQUENCES, critic_head="two_hot", vmin=-5.0, vmax=5.0, num_bins=101, scale_returns=True
            )
        ),
        SPEC,
    ),
    "mpo, discrete": (mpo.MPOBuilder(mpo.MPOConfig(**SEQUENCES)), DISCRETE),
    "sac, 3 steps": (sac.SACBuilder(sac.SACConfig(**SMALL, policy_layer_sizes=(4,), n_step=3)), SPEC),
    "td3": (td3.TD3Builder(td3.TD3Config(**SMALL, policy_layer_sizes=(4,))), SPEC),
    "dqn, 2 steps": (dqn.DQNBuilder(dqn.DQNConfig(**SMALL, n_step=2)), DISCRETE),
}


def make_store(builder, spec, backend):
    """A server whose items are read once, in order."""
    (table,) = builder.make_replay_tables(spec)
    queue = replay.TableConfig(
        name=table.name,
        signature=table.signature,
        max_size=1000,
        rate_limiter=replay.MinSize(1),
        sampler=replay.Fifo(),
        max_times_sampled=1,
    )
    return backends.make_server([queue], backend, seed=0)


def play_online(builder, spec, adder, num_steps):
    """Plays with the exploring policy; the last episode is cut off in the middle."""
    generator = torch.Generator().manual_seed(0)
    networks = builder.make_networks(spec, generator)
    policy = builder.make_policy(networks, spec, generator, counter=counting.Counter())
    actor = builder.make_actor(policy, adder=adder)
    environments.EnvironmentLoop(environment=Wanderer(spec=spec), actor=actor).run(num_steps=num_steps)
    adder.reset()


@pytest.mark.parametrize(
    ("name", "backend"),
    [
        *((name, "memory") for name in BUILDERS),
        *(pytest.param(name, "reverb", marks=pytest.mark.reverb) for name in ("mpo, sequences", "td3")),
    ],
)
def test_what_was_recorded_fills_replay_row_for_row_as_playing_did(tmp_path, name, backend):
    builder, spec = BUILDERS[name]
    unpack = builder.make_layout(spec).unpack
    items = []
    with (
        datasets.Writer(tmp_path / "data", spec) as writer,
        make_store(builder, spec, backend) as server,
        server.client() as client,
        builder.make_adder(client, spec) as inner,
    ):
        adder = datasets.RecordingAdder(writer.write, inner)
        play_online(builder, spec, adder, num_steps=60)
        assert adder.num_inserted > 20
        items.append(testing.read_items(client, "replay", unpack))
    recording = datasets.read(tmp_path / "data")
    assert recording.num_steps == 60
    ends = [episode.terminated for episode in recording]
    assert True in ends and False in ends
    with make_store(builder, spec, backend) as server, server.client() as client:
        with builder.make_adder(client, spec) as adder:
            played = datasets.play(recording, adder, spec=spec, extras_spec=builder.extras_spec(spec))
        assert played == (len(recording), 60, 0)
        items.append(testing.read_items(client, "replay", unpack))
    testing.assert_nests_equal(items[1], items[0])


class Tape(core.Adder):
    """Remembers what it is given."""

    num_inserted = 0

    def __init__(self):
        self.steps = []

    def add_first(self, timestep):
        self.steps.append((None, timestep, ()))

    def add(self, action, next_timestep, extras=()):
        self.steps.append((action, next_timestep, extras))

    def flush(self):
        self.is_flushed = True

    def reset(self):
        pass

    def close(self):
        pass


MPO = mpo.MPOBuilder(mpo.MPOConfig(**SEQUENCES))
EXTRAS = MPO.extras_spec(SPEC)
ON_POLICY = {"policy_layer_sizes": (4,), "value_layer_sizes": (4,), "num_environments": 1}


def make_vmpo(squash_actions):
    return vmpo.VMPOBuilder(vmpo.VMPOConfig(**ON_POLICY, squash_actions=squash_actions))


def make_ppo(squash_actions):
    return ppo.PPOBuilder(
        ppo.PPOConfig(**ON_POLICY, squash_actions=squash_actions, normalize_observations=False)
    )


def test_a_step_without_a_log_probability_has_the_executed_action_and_is_counted(make_episode):
    tape, episode = Tape(), make_episode(4)
    log_prob = np.arange(3, dtype=np.float32)
    known = make_episode(3, log_prob=log_prob, raw_action=np.full((3, 1), 7.0, np.float32))
    known = known._replace(action=np.ones((3, 1), np.float32))
    played = datasets.play([episode, known], tape, spec=SPEC, extras_spec=EXTRAS)
    assert tape.is_flushed
    assert played == (2, 7, 4)
    assert str(played) == (
        "2 episodes, 7 steps, 57.1% of them without a log-probability, where Retrace cuts its traces"
    )
    extras = [step[2] for step in tape.steps if step[0] is not None]
    assert [float(each.log_prob) for each in extras] == [*[np.float32(1e15)] * 4, 0.0, 1.0, 2.0]
    for each, action in zip(extras[:4], episode.action, strict=True):
        np.testing.assert_array_equal(each.raw_action, action)
    assert all(each.raw_action == 7.0 for each in extras[4:])


LOW, HIGH = np.array([-1.0, 0.5], np.float32), np.array([1.0, 3.0], np.float32)
TWO = SPEC._replace(actions=specs.BoundedArray((2,), np.float32, LOW, HIGH, name="action"))


def record(builder, spec, num_steps=60):
    """The episodes that the exploring policy of a builder plays."""
    episodes = []
    play_online(builder, spec, datasets.RecordingAdder(episodes.append), num_steps)
    return episodes


@pytest.mark.parametrize("squash_actions", [True, False])
@pytest.mark.parametrize("make", [make_vmpo, make_ppo])
def test_what_was_recorded_of_squashed_actions_is_played_as_executed(make, squash_actions):
    tape, episodes = Tape(), record(make(squash_actions), TWO)
    played = datasets.play(episodes, tape, spec=TWO, extras_spec=MPO.extras_spec(TWO))
    assert played.num_without_log_prob == 0
    squash = distributions.TanhSquash(torch.from_numpy(LOW), torch.from_numpy(HIGH))
    steps = [step for step in tape.steps if step[0] is not None]
    recorded = [
        (episode.extras["raw_action"][t], episode.extras["log_prob"][t])
        for episode in episodes
        for t in range(episode.num_steps)
    ]
    num_clipped = 0
    for (action, _, extras), (raw, log_prob) in zip(steps, recorded, strict=True):
        # MPO's critic and its densities see the raw action, clipped.
        np.testing.assert_allclose(np.clip(extras.raw_action, LOW, HIGH), action, rtol=1e-5, atol=1e-6)
        if squash_actions:
            log_prob = log_prob - squash.log_det(torch.from_numpy(raw)).numpy()
        else:
            num_clipped += (raw != action).any()
        assert extras.log_prob == pytest.approx(log_prob, rel=1e-5, abs=1e-5)
    assert len(steps) == 60 and (squash_actions or num_clipped > 5)


@pytest.mark.parametrize("flaw", ["another raw action", "no number", "a raw action without a density"])
def test_a_step_whose_raw_action_was_not_executed_is_played_without_it(flaw):
    episode = max(record(make_ppo(False), TWO), key=lambda episode: episode.num_steps)
    raw, log_prob = (episode.extras[name].copy() for name in ("raw_action", "log_prob"))
    if flaw == "another raw action":
        raw[1] = 0.5 * (episode.action[1] + 1.0)
    else:
        log_prob[1] = np.nan
    extras = {"raw_action": raw, "log_prob": log_prob}
    if flaw == "a raw action without a density":
        del extras["log_prob"]
    tape = Tape()
    played = datasets.play(
        [episode._replace(extras=extras)], tape, spec=TWO, extras_spec=MPO.extras_spec(TWO)
    )
    unknown = range(episode.num_steps) if "log_prob" not in extras else [1]
    assert played.num_without_log_prob == len(unknown)
    for t, (_, _, found) in enumerate(tape.steps[1:]):
        assert (found.log_prob == datasets.UNKNOWN_LOG_PROB) == (t in unknown)
        if t in unknown and flaw != "a raw action without a density":
            np.testing.assert_array_equal(found.raw_action, episode.action[t])


def test_retrace_cuts_its_trace_at_a_step_without_a_log_probability():
    random = torch.Generator().manual_seed(0)
    q, v, r, pi, b = torch.rand(5, 2, 4, generator=random)
    ones = torch.ones(2, 4)
    b[:, 2] = torch.from_numpy(np.asarray(datasets.UNKNOWN_LOG_PROB))
    targets = retrace_targets(q, v, r, 0.9 * ones, pi, b, ones, lambda_=1.0)
    # As if the sequence had ended before the step, and begun again with it.
    for part in (slice(2), slice(2, None)):
        pieces = [x[:, part] for x in (q, v, r, 0.9 * ones, pi, b, ones)]
        torch.testing.assert_close(targets[:, part], retrace_targets(*pieces, lambda_=1.0))


def test_steps_are_played_as_an_environment_would_have_returned_them(make_episode):
    tape = Tape()
    ended, cut = make_episode(2, True), make_episode(1, False)
    datasets.play([ended, cut], tape, spec=SPEC)
    kinds = [step[1].step_type for step in tape.steps]
    first, mid, last = dm_env.StepType
    assert kinds == [first, mid, last, first, last]
    assert [step[1].discount for step in tape.steps] == [None, 1.0, 0.0, None, 1.0]
    assert [step[1].reward for step in tape.steps] == [None, *ended.reward, None, *cut.reward]
    assert [step[2] for step in tape.steps] == [()] * 5
    observations = [step[1].observation for step in tape.steps]
    np.testing.assert_array_equal(observations, [*ended.observation, *cut.observation])


def test_a_discount_has_the_dtype_of_its_spec(make_episode):
    tape = Tape()
    spec = SPEC._replace(discounts=specs.BoundedArray((), np.float64, 0.0, 1.0, name="discount"))
    datasets.play([make_episode(2, True)], tape, spec=spec)
    assert [step[1].discount.dtype for step in tape.steps[1:]] == [np.float64] * 2


def test_extras_that_only_the_agent_itself_records_are_asked_for_by_name(make_episode):
    spec = {"state": (specs.Array((2,), np.float32),)}
    with pytest.raises(specs.SpecError, match=r"`extras\['state'\]\[0\]` must be recorded .* got nothing"):
        datasets.play([make_episode()], Tape(), spec=SPEC, extras_spec=spec)
    tape, state = Tape(), np.arange(10, dtype=np.float32).reshape(5, 2)
    datasets.play([make_episode(state=(state,))], tape, spec=SPEC, extras_spec=spec)
    np.testing.assert_array_equal([step[2]["state"][0] for step in tape.steps[1:]], state)
    with pytest.raises(specs.SpecError, match=r"must be float32 of shape \(5, 2\), got float32 of shape"):
        datasets.play([make_episode(state=(state[:4],))], Tape(), spec=SPEC, extras_spec=spec)


def test_data_of_another_environment_is_refused_before_anything_is_played(tmp_path, make_episode):
    datasets.write(tmp_path / "data", [make_episode()], SPEC)
    other = SPEC._replace(actions=specs.BoundedArray((1,), np.float32, -2.0, np.inf, name="action"))
    tape = Tape()
    with pytest.raises(
        specs.SpecError, match=r"`action` of the data must be .* in \[-2, inf\].* in \[-1, 1\]"
    ):
        datasets.play(datasets.read(tmp_path / "data"), tape, spec=other)
    assert tape.steps == []


def test_nested_observations_and_actions_are_played_row_by_row(make_episode):
    spec = SPEC._replace(
        observations={"a": SPEC.observations, "b": (specs.Array((), np.int32),)},
        actions=(SPEC.actions, DISCRETE.actions),
    )
    episode = make_episode(3)
    numbers = np.arange(4, dtype=np.int64)
    nested = episode._replace(
        observation={"b": (numbers,), "a": episode.observation}, action=(episode.action, numbers[:3] % 3)
    )
    tape = Tape()
    datasets.play([nested], tape, spec=spec)
    for t, (action, timestep, _) in enumerate(tape.steps):
        specs.check_conforms("observation", timestep.observation, spec.observations)
        assert timestep.observation["b"][0] == t
        if t:
            specs.check_conforms("action", tree.map_structure(np.asarray, action), spec.actions)
            assert action[1] == t - 1


class Refusing(core.Adder):
    """Refuses the step with this index."""

    num_inserted = 0

    def __init__(self, step):
        self.step = step

    def add_first(self, timestep):
        self.at = 0

    def add(self, action, next_timestep, extras=()):
        if self.at == self.step:
            raise ValueError("`extras` must be fine.")
        self.at += 1

    def reset(self):
        pass

    flush = close = reset


def test_an_error_names_the_folder_the_episode_and_the_step(make_episode, tmp_path):
    datasets.write(tmp_path / "data", [make_episode(2), make_episode(5)], SPEC)
    recording, arguments = datasets.read(tmp_path / "data"), {"spec": SPEC}
    message = r"pisode 1: at step 3, counted from 0, `extras` must be fine\."
    with pytest.raises(specs.SpecError, match=f"^{tmp_path / 'data'}, e{message}"):
        datasets.play(recording, Refusing(3), **arguments)
    with pytest.raises(specs.SpecError, match=f"^E{message}"):
        datasets.play(iter([*recording]), Refusing(3), **arguments)
    wrong = make_episode(2)._replace(reward=np.float32([0.0, np.inf]))
    with pytest.raises(specs.SpecError, match=r"^Episode 1: `reward` .* got inf at step 1"):
        datasets.play([make_episode(2), wrong], Refusing(9), **arguments)
