"""Scores on recorded data: which setting is chosen, and the paired differences, by hand."""

import math
import threading
import types

import pytest

from minerva_acme import datasets, experiments, results
from minerva_acme.agents import mpo
from tests.learning import offline


def test_the_setting_with_the_highest_mean_is_chosen():
    assert offline.best({"a": [0.1, 0.9], "b": [0.6, 0.6], "c": [0.6, 0.6]}) == "b"


def test_the_offline_preset_is_mpos_chosen_setting(tmp_path):
    study = offline.Study(tmp_path, num_learner_steps=5)
    study.results = offline.STORED
    chosen = study.choose(offline.TASKS, ["mpo"])["mpo"]
    assert offline.SETTINGS["mpo"][chosen].config == mpo.PRESETS["offline"]


def test_the_names_of_all_settings_can_be_those_of_stored_results():
    for agent, settings in offline.SETTINGS.items():
        for setting in settings:
            results.check_name(f"{offline.PREFIX}{agent}+{setting}{offline.EXPLORE}+replay")


def test_the_interval_of_paired_differences_is_students():
    mean, half = offline.interval([0.1, 0.2, 0.3])
    assert mean == pytest.approx(0.2) and half == pytest.approx(4.302653 * 0.1 / math.sqrt(3))
    assert math.isnan(offline.interval([0.1])[1])


def test_differences_are_paired_by_seed():
    rows = [
        ("t", "replay", "BC", 0.5, {0: 0.4, 1: 0.6}, {0: 0.4, 1: 0.6}),
        ("t", "replay", "CRR", 0.5, {1: 0.8, 0: 0.5, 7: 0.0}, {0: 0.4, 1: 0.6}),
    ]
    lines = offline.table(rows).splitlines()
    assert lines[2] == "| t | replay | 0.500 | BC | 0.500 |  | 2 |"
    assert lines[3].startswith("| t | replay | 0.500 | CRR | 0.433 | +0.150 +- 0.635 | 3 |")


def test_the_table_of_settings_has_the_means_over_the_seeds_for_tuning(tmp_path, monkeypatch):
    scores = {
        ("offline_crr+binary", "Pendulum-v1"): {0: 9.0, 100: 0.1, 101: 0.3},
        ("offline_crr+binary", "cartpole_swingup"): {100: 0.5, 101: 0.7},
    }
    monkeypatch.setattr(
        offline.Study,
        "scores",
        lambda self, name, task, kind: scores.get((name, task.name), {100: 0.0, 101: 0.0}),
    )
    study = offline.Study(tmp_path, num_learner_steps=5)
    lines = offline.tuning_table(study, offline.TASKS, ["bc", "crr"]).splitlines()
    assert lines[0] == "| agent | setting | Pendulum-v1 | cartpole_swingup |"
    assert lines[2:4] == ["| CRR | binary | 0.200 | 0.600 |", "| CRR | beta=0.1 | 0.000 | 0.000 |"]
    assert len(lines) == 2 + len(offline.SETTINGS["crr"])
    assert study.choose(offline.TASKS, ["bc", "crr"]) == {"bc": "default", "crr": "binary"}


def test_episodes_that_were_cut_off_do_not_count_in_the_return_of_data(tmp_path, make_episodes):
    folder = tmp_path / "data"
    make_episodes(folder, lengths=[3, 5, 5], reward=2.0)
    assert offline.full_returns(datasets.read(folder)) == [10.0, 10.0]


def test_only_the_agents_that_are_asked_for_and_bc_are_made(tmp_path, monkeypatch, capsys):
    made = []
    row = {0: 0.5, 1: 0.5, **dict.fromkeys(offline.TUNING_SEEDS["crr"], 0.5)}
    monkeypatch.setattr(offline.Study, "make_data", lambda self, task: None)
    monkeypatch.setattr(offline.Study, "score", lambda self, score: made.append(score))
    monkeypatch.setattr(offline.Study, "pooled", lambda self, name, task, kind: {(task, 0): 0.5})
    monkeypatch.setattr(offline.Study, "scores", lambda self, name, task, kind: row)
    monkeypatch.setattr(offline.Study, "data_score", lambda self, task, kind: 0.5)
    words = ["--folder", str(tmp_path), "--tasks", "Pendulum-v1", "--seeds", "0", "1", "--agents", "crr"]
    printed = offline.main(words)
    kinds = {agent: {score.kind for score in made if score.agent == agent} for agent in ("bc", "crr", "td3")}
    assert kinds == {"bc": {"medium", "replay", "mixed"}, "crr": {"replay", "mixed"}, "td3": set()}
    assert "CRR, binary" in printed and "TD3" not in printed


def test_other_data_is_made_by_another_seed_and_learned_from_as_stored(tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(offline.Study, "make_data", lambda self, task: made.append(task.maker_seed))
    monkeypatch.setattr(offline.Study, "score", lambda self, score: made.append(score))
    monkeypatch.setattr(offline, "_rows", lambda *study_tasks_and_settings: [])
    words = ["--folder", str(tmp_path), "--tasks", "Pendulum-v1", "--seeds", "3", "--agents", "crr"]
    offline.main([*words, "--maker-seed", "7"])
    assert made.pop(0) == 7
    assert {(score.seed, score.task.maker_seed) for score in made} == {(3, 7)}
    assert {score.setting for score in made if score.agent == "crr"} == {"beta=0.1"}
    study = offline.Study(tmp_path, num_learner_steps=5)
    assert study.data(made[0].task, "replay").name == "Pendulum-v1-replay-v7"
    assert made[0].run == "medium-v7-bc+default"


def test_scores_are_relative_to_the_agent_that_made_the_data(tmp_path):
    study, task = offline.Study(tmp_path, num_learner_steps=5), offline.TASKS[0]
    task = task._replace(kinds=("replay",))

    def write(name, final, **others):
        rows = tuple(
            results.Row(name, task.env_name, seed, metric, 5, value)
            for metric, values in {"final_return": final, **others}.items()
            for seed, value in values.items()
        )
        study._write(results.Experiment(exp_name=name, rows=rows, action_repeat=1))

    write(offline.FINAL, {0: 10.0, 1: 10.0}, random_return={0: 0.0, 1: -10.0})
    write(f"{offline.DATA}+replay", {0: 4.0, 1: 2.0})  # scores 0.4 and 0.6
    write("offline_bc+default+replay", {0: 1.0, 3: 2.0})
    write("offline_bc+default+replay-v1", {3: -10.0})
    write("offline_crr+binary+replay", {0: 3.0, 3: 4.0})
    write("offline_crr+binary+replay-v1", {3: 2.0, 9: 10.0})
    chosen = {"bc": "default", "crr": "binary"}
    lines = offline.table(list(offline._rows(study, [task], chosen))).splitlines()
    # CRR: 0.3, 0.4 and 0.6, BC with the same data and seed 0.1, 0.2 and 0. Seed 9 is not one to report.
    assert lines[-1].startswith("| Pendulum-v1 | replay | 0.467 | CRR, binary | 0.433 | +0.333 +- ")
    assert lines[-1].endswith(" | 3 |")
    assert lines[-2].startswith("| Pendulum-v1 | replay | 0.467 | BC, default | 0.100 |")


def test_the_score_of_data_is_stored_with_the_run_of_its_maker_alone(tmp_path):
    study, task = offline.Study(tmp_path, num_learner_steps=5), offline.TASKS[0]
    for env_name, seed in [(task.env_name, 0), (task.env_name, 1), ("CartPole-v1", 1)]:
        run = results.Experiment(
            exp_name=offline.FINAL,
            rows=(results.Row(offline.FINAL, env_name, seed, "final_return", 5, float(seed)),),
            action_repeat=1,
            commands={env_name: f"minerva train {env_name}"},
            contexts=(results.Context(frozenset({(env_name, seed)}), "0.1.0", f"commit{seed}", {}, None),),
        )
        study._write(run)
    maker = study._maker(task._replace(maker_seed=1))
    assert [(row.env_name, row.seed) for row in maker.rows] == [(task.env_name, 1)]
    assert maker.commands == {task.env_name: f"minerva train {task.env_name}"}
    assert [(c.trainings, c.commit) for c in maker.contexts] == [({(task.env_name, 1)}, "commit1")]


def test_scores_are_stored_without_curves(tmp_path):
    metrics = ("avg_return", "final_return", "final_return_std", "random_return", "cpu_seconds")
    for name in (offline.FINAL, "offline_bc+default+replay", "other"):
        rows = tuple(results.Row(name, "Pendulum-v1", 0, metric, 5, 1.0) for metric in metrics)
        results.write(tmp_path / "results", results.Experiment(exp_name=name, rows=rows, action_repeat=1))
    offline.store_scores(tmp_path / "results", tmp_path / "scores")
    kept = {
        path.stem: {row.metric for row in results.read(path)[0].rows}
        for path in (tmp_path / "scores").glob("*.csv")
    }
    scores = {"final_return", "final_return_std"}
    assert kept == {offline.FINAL: {*scores, "random_return"}, "offline_bc+default+replay": scores}


SCORES = [offline.Score(offline.TASKS[0], "replay", "bc", "default", seed) for seed in range(6)]


def test_a_run_that_a_signal_stopped_is_not_scored(tmp_path, monkeypatch):
    monkeypatch.setattr(
        experiments, "run_experiment", lambda config: types.SimpleNamespace(interrupted_by="SIGINT")
    )
    study = offline.Study(tmp_path, num_learner_steps=5)
    with pytest.raises(KeyboardInterrupt):
        study.score_all(SCORES)
    assert not (tmp_path / "results").exists()


def test_of_two_that_share_a_folder_each_makes_what_the_other_is_not_making(tmp_path, monkeypatch):
    both, made = threading.Barrier(2, timeout=60), []
    monkeypatch.setattr(offline, "_SECONDS_BETWEEN_LOOKS", 0.01)

    class Shared(offline.Study):
        is_first = True

        def score(self, score):
            if score not in made:
                if self.is_first:
                    both.wait()  # two are made at the same time
                    self.is_first = False
                made.append(score)

    studies = [Shared(tmp_path, 5) for _ in range(2)]
    threads = [threading.Thread(target=study.score_all, args=[SCORES]) for study in studies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(made) == sorted(SCORES)


@pytest.fixture
def make_episodes():
    import numpy as np

    from minerva_acme import specs

    def make(folder, lengths, reward):
        spec = specs.EnvironmentSpec(
            specs.Array((2,), np.float32, name="observation"),
            specs.BoundedArray((1,), np.float32, -1.0, 1.0, name="action"),
            specs.Array((), np.float32, name="reward"),
            specs.BoundedArray((), np.float32, 0.0, 1.0, name="discount"),
        )
        episodes = [
            datasets.Episode(
                np.zeros((length + 1, 2), np.float32),
                np.zeros((length, 1), np.float32),
                np.full(length, reward, np.float32),
                False,
            )
            for length in lengths
        ]
        datasets.write(folder, episodes, spec)

    return make
