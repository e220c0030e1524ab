"""Metrics of the user's own on the command line: named once, they are what every command goes by."""

import contextlib
import io
import json
import re
import shutil

import pytest

from minerva_acme import plotting, results, runs
from minerva_acme.cli import main, parsing, publish, search, sweep_plan
from minerva_acme.runs import checkpointing, policies, verification

TRAIN = (
    "train ppo --env tests.experiments.reaching:Reach --rollout-steps 16 --minibatch-size 8 --num-epochs 1"
    " --policy-layer-sizes 8 --value-layer-sizes 8 --evaluation-episodes 4 --evaluation-period 16 --log csv"
    " --replay memory --num-environments 1"
)
METRIC = "info/is_success/max"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of a run that goes by its metric, and what the run printed."""
    directory = tmp_path_factory.mktemp("metrics") / "run"
    words = [*TRAIN.split(), "--num-env-steps", "64", "--metric", METRIC, "--directory", str(directory)]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main(words) == 0
    return directory, " ".join(out.getvalue().split())


def means(directory):
    curve = plotting.read_curve(directory, f"evaluator/{METRIC}")
    return dict(zip(curve.x.astype(int).tolist(), curve.values.tolist(), strict=True))


def test_a_run_shows_its_metric_and_keeps_the_best_by_it(trained):
    directory, out = trained
    found = means(directory)
    assert [*found] == [0, 16, 32, 48, 64] and len({*found.values()}) > 1
    best = checkpointing.env_steps(checkpointing.find(directory, "best"))
    assert found.pop(0) <= found[best] == max(found.values())
    assert f"64 steps: evaluation return 0.0 ± 0.0, {METRIC} {found[64]:.3g}, info/is_success/last" in out
    assert f"return ┃ {METRIC} ┃" in out


def test_eval_prints_means_and_spread_of_every_metric(trained, call):
    directory, _ = trained
    status, out, err = call("eval", directory, "--episodes", 4, "--import-code", "--json")
    assert status == 0, err
    found = json.loads(out)["metrics"]
    keys = ("is_success", "distance", "energy")
    assert {*found} == {f"info/{key}/{statistic}" for key in keys for statistic in ("last", "max")}
    numbers = found[METRIC]["episodes"]
    assert len(numbers) == 4 and found[METRIC]["mean"] == sum(numbers) / 4
    _, out, _ = call("eval", directory, "--episodes", 4, "--import-code")
    assert f"{METRIC} {found[METRIC]['mean']:.4g} ± {found[METRIC]['std']:.4g}" in out


def test_scores_of_exported_weights_and_videos_go_by_it(trained, call, tmp_path):
    directory, _ = trained
    weights = tmp_path / "weights.safetensors"
    words = ("export", directory, "--output", weights, "--episodes", 4, "--import-code")
    status, out, err = call(*words)
    assert status == 0 and f"Score ({METRIC}) " in out, err
    score = policies.find(weights).score
    assert score.metric == METRIC and 0.0 <= score.mean <= 1.0
    verdict = verification.verify(weights, import_code=True)
    assert verdict.is_same and verdict.mean == score.mean == verdict.played.score(METRIC)
    policies.note_score(weights, score._replace(mean=score.mean + 10.0))
    status, out, _ = call("verify", weights, "--import-code")
    assert status == 1 and METRIC in "".join(out.split()) and "DIFFERS" in out
    card = "\n".join(publish.make_card(policies.find(weights), score, "me/mine", []))
    assert f"**Mean {METRIC} {score.mean:.4g} +/- " in card and f'"type": "{METRIC}"' in card
    words = ("video", directory, "--episodes", 2, "--import-code", "--output", tmp_path / "film.gif")
    status, out, err = call(*words)
    assert status == 0 and f"return 0.00, {METRIC} " in " ".join(out.split()), err


def test_what_only_observers_in_python_measure_is_no_score(trained, tmp_path):
    directory = tmp_path / "run"
    shutil.copytree(trained[0], directory)
    described = json.loads((directory / "run.json").read_text())
    described["options"]["metric"] = "action_norm/mean"
    (directory / "run.json").write_text(json.dumps(described))
    weights = tmp_path / "weights.safetensors"
    runs.export_policy(directory, weights, import_code=True)
    assert verification.score(directory, weights, 2, import_code=True).metric == "episode_return"


def test_list_and_plot_name_it(trained, call, tmp_path):
    directory, _ = trained
    status, out, _ = call("list", "runs", "--directory", directory)
    assert status == 0 and f"64 of 64 steps, {METRIC} {means(directory)[64]:.4g}" in out
    words = ("plot", directory, "--metric", f"evaluator/{METRIC}", "--output", tmp_path / "curve.svg")
    status, _, err = call(*words)
    assert status == 0, err
    assert "info/is success/max" in (tmp_path / "curve.svg").read_text()


def test_a_run_is_resumed_with_its_metric_and_keeps_it(trained, call, tmp_path):
    directory = tmp_path / "run"
    shutil.copytree(trained[0], directory)
    status, _, err = call("resume", directory, "--stop-at", -1, "--import-code")
    assert status == 2 and "must be greater than the 64 steps" in err
    status, _, err = call("resume", directory, "--num-env-steps", 96, "--stop-at", -1, "--import-code")
    assert status == 2 and f"`stop_at` must be above the {METRIC} of" in err
    status, _, err = call("resume", directory, "--num-env-steps", 96, "--import-code")
    assert status == 0, err
    assert [*means(directory)] == [0, 16, 32, 48, 64, 80, 96]
    status, _, err = call(*TRAIN.split(), "--num-env-steps", 112, "--directory", directory)
    assert status == 2 and f"`metric` must be '{METRIC}', by which the run has" in err


def test_the_negative_of_a_metric_is_a_word_of_its_flag():
    words = [*TRAIN.split(), "--metric", "-info/energy/sum", "--stop-at", "-5"]
    parsed = parsing.parse(words).run
    assert (parsed.metric, parsed.stop_at) == ("-info/energy/sum", -5.0)
    assert parsing.parse([*TRAIN.split(), "--metric=-episode_length"]).run.metric == "-episode_length"


def test_a_metric_that_is_unknown_is_told_with_those_that_are(call, tmp_path):
    words = [*TRAIN.split(), "--num-env-steps", 64, "--directory", tmp_path / "run"]
    status, _, err = call(*words, "--metric", "success_rate")
    assert status == 2
    assert "got 'success_rate'. This one had episode_return, " in err and "info/is_success/last" in err


def test_rows_hold_the_metric_and_a_report_compares_it(trained, call, tmp_path, unpainted):
    unpainted()
    directory, _ = trained
    assert call("collect", directory, "--name", "mine", "--output", tmp_path / "rows")[0] == 0
    (one,) = results.read(tmp_path / "rows" / "mine.csv")
    assert {row.env_step: row.value for row in one.rows if row.metric == METRIC} == means(directory)
    words = ("report", tmp_path / "rows", "--metric", METRIC, "--output", tmp_path / "report")
    status, _, err = call(*words)
    assert status == 2 and f"The range of {METRIC} of tests.experiments.reaching:Reach must be known" in err
    status, out, err = call(*words, "--range", "tests.experiments.reaching:Reach=0:1")
    assert status == 0, err
    assert re.search(rf"mine 1 {means(directory)[64]:.3f} ", out)
    assert f"{METRIC} by environment" in out
    status, _, err = call(*words, "--against", "mpo")
    assert status == 2 and "published results are returns" in err
    status, _, err = call("report", tmp_path / "rows", "--metric", "speed")
    assert status == 2 and "must have rows of `speed`, got" in err


def test_a_sweep_reports_the_metric_of_its_runs(trained, call, tmp_path, unpainted):
    unpainted()
    words = ["sweep", *TRAIN.split()[1:], "--num-env-steps", "64", "--metric", METRIC]
    words = [word.replace("--num-environments", "--num-envs") for word in words]
    status, _, err = call(*words, "--directory", tmp_path, "--dry-run")
    assert status == 2 and f"The range of {METRIC} of tests.experiments.reaching:Reach must be known" in err
    (run,) = sweep_plan.make_plan(parsing.parse([*words, "--directory", str(tmp_path)]))
    shutil.copytree(trained[0], run.directory)  # the run that it asks for is done
    known = ("--range", "tests.experiments.reaching:Reach=0:1", "--directory", tmp_path)
    status, out, err = call(*words, *known)
    assert status == 0, err
    assert "1 of them done" in out and f"{METRIC} by environment" in out
    values = search.read_values([run])
    assert values == {step: value for step, value in means(run.directory).items() if step > 0}
