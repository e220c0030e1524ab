"""The rows that are installed with the library: whole, and the ones that the pages show."""

import dataclasses
import pathlib
import re
import shlex

import pytest

from minerva_acme import environments, results
from minerva_acme.agents import mpo, registry
from minerva_acme.cli import parsing
from minerva_acme.environments.task_settings import TaskSettings, split_repeat
from minerva_acme.runs import policies, run_names
from tests.learning import offline

REPOSITORY = pathlib.Path(__file__).parents[2]
OWN = results.load()
SWINGUP = "dm_control/cartpole/swingup"


def test_every_row_is_of_an_environment_that_there_is_and_of_a_known_metric():
    files = [REPOSITORY / "docs/how-to" / name for name in ("pixels.md", "muscles.md")]
    pages = "".join(file.read_text(encoding="utf-8") for file in files)
    for env_name in {row.env_name for experiment in OWN.values() for row in experiment.rows}:
        if ":" in env_name:  # of a package that tests do not need; a page says how to get it
            assert f"--env {env_name} " in pages
        else:
            parts = env_name.split("/")
            assert "/".join(parts[:3]) in environments.list_environments()
            assert not parts[3:] or TaskSettings.parse(*parts[3:])
            assert "repeat=" not in env_name
    for name, experiment in OWN.items():
        named = {
            row.metric for row in experiment.rows if not row.metric.startswith("info/")
        }  # else the task's
        assert named <= set(results.METRICS), name
        # Results of trainings that were made by ids: their repeat is known, and their names say it.
        assert experiment.action_repeat is not None, name
        assert results.with_repeat(name, experiment.action_repeat) == name


def test_every_final_score_has_its_standard_deviation():
    for name, experiment in OWN.items():
        means, stds = (
            {(row.env_name, row.seed, row.env_step) for row in experiment.rows if row.metric == metric}
            for metric in ("final_return", "final_return_std")
        )
        assert means == stds, name


@pytest.mark.parametrize("name", OWN)
def test_every_training_says_on_what_machine_it_was_made_and_by_which_command(name):
    experiment = OWN[name]
    assert all(context.machine for context in experiment.contexts)
    if name.split("_")[0] not in registry.AGENTS:
        return  # a reference that is no agent of ours
    parsed = {}  # by the words of a command but its environment
    for env_name in {env_name for env_name, _ in experiment.trainings}:
        words = shlex.split(experiment.commands[env_name].format(seed=3))
        env = words[words.index("--env") + 1]
        others = " ".join(word for word in words if word != env)
        if others not in parsed:
            parsed[others] = parsing.parse(words[1:])
            assert parsed[others].env == env
        command = parsed[others]
        assert split_repeat(env) == (env_name, experiment.action_repeat)
        assert command.run.seed == 3
        # What was typed counts decisions, and a run may have been stopped before.
        assert experiment.decisions[env_name] <= command.run.num_env_steps


@pytest.mark.parametrize("name", results.list_weights())
def test_stored_weights_are_those_of_a_stored_training_and_reach_its_score(name):
    exp_name, env_name = name.split(":")
    found = policies.find(name)
    # Named when the settings that `run_folder.parse` adds for older formats did not exist.
    added = {"bounded_mean", "temperature"} & set(found.description.hyperparameters)
    younger = {name: getattr(mpo.MPOConfig(), name) for name in added}
    before = {**found.description.hyperparameters, **younger}
    named = dataclasses.replace(found.description, hyperparameters=before)
    assert run_names.exp_name(named) == exp_name
    task, repeat = found.description.base_task
    assert (task, repeat) == (env_name, OWN[exp_name].action_repeat)
    frames = found.env_steps * repeat
    values = {
        row.metric: row.value
        for row in OWN[exp_name].rows
        if (row.env_name, row.seed, row.env_step) == (env_name, found.description.seed, frames)
    }
    assert found.score is not None and found.score.num_episodes >= 10
    spread = max(found.score.std, values["final_return_std"]) / 10**0.5
    assert abs(found.score.mean - values["final_return"]) <= 6 * spread + 0.005 * abs(found.score.mean)


def test_failed_seeds_are_among_them():
    assert min(row.value for row in OWN["ppo_default"].rows if row.metric == "avg_return") == 170.0


def test_rows_from_before_modern_was_mended_say_so():
    before = OWN["mpo_modern_saturated"]
    (commit,) = {context.commit[:8] for context in before.contexts}
    assert f"as it was at commit {commit}" in before.notes and "beyond the action bounds" in before.notes


def test_published_results_say_where_they_are_from():
    published = results.load_published()
    assert len(published) == 23
    for found in published.values():
        assert found.source.startswith("https://github.com/") and len(found.commit) == 7
        assert found.licence.split(",")[0] in ("MIT", "Apache-2.0")
        assert found.action_repeat is None or found.action_repeat >= 1
        assert found.updates_per_frame is None or found.updates_per_frame > 0.0
        known = set(environments.list_environments())
        for env_name, points in found.points.items():
            assert env_name in known
            steps = [point.env_step for point in points]
            assert steps == sorted(set(steps))
            assert all(0.0 <= point.mean <= 1000.0 and point.num_seeds >= 2 for point in points)


def test_the_page_of_reports_lists_every_published_result():
    page = (REPOSITORY / "docs/how-to/report.md").read_text(encoding="utf-8")
    table = page.partition("## Published results")[2].partition("\n## ")[0]
    names = re.findall(r"`(\w+)`", " ".join(re.findall(r"^\|(.*?)\|", table, re.MULTILINE)))
    assert sorted(names) == sorted(results.load_published())


def test_a_published_number_is_what_its_source_gives():
    points = {point.env_step: point for point in results.load_published()["mpo"].points[SWINGUP]}
    assert (round(points[100_000].mean), round(points[100_000].std)) == (797, 58)
    (at_100k,) = (
        p for p in results.load_published()["simba_v2"].points["dm_control/dog/run"] if p.env_step == 100_000
    )
    assert at_100k.num_seeds == 10


def test_every_published_number_is_at_a_step_that_its_source_logs():
    published = results.load_published()
    every_100k = {name for name, found in published.items() if found.log_period == 100_000}
    assert {"sac", "simba_v2", "xqc", "flash_sac", "sac_simba_utd1", "simba_v2_utd8"} < every_100k
    for found in published.values():
        for points in found.points.values():
            steps = [point.env_step for point in points]
            if found.log_period is None:
                assert steps[0] == 50_000  # training episodes, which are logged from about 40,000 frames on
            else:
                assert all(step >= found.log_period and step % found.log_period == 0 for step in steps)


def test_published_numbers_are_not_on_lines_between_their_neighbours():
    for name, found in results.load_published().items():
        on_a_line: dict[int, list[bool]] = {}  # by step, of each environment
        for points in found.points.values():
            for before, point, after in zip(points, points[1:], points[2:], strict=False):
                share = (point.env_step - before.env_step) / (after.env_step - before.env_step)
                middle = before.mean + share * (after.mean - before.mean)
                # Means are rounded to a tenth.
                on_a_line.setdefault(point.env_step, []).append(abs(point.mean - middle) < 0.11)
        assert not [step for step, curves in on_a_line.items() if sum(curves) > len(curves) / 2], name


def test_updates_a_frame_are_half_of_what_a_decision_of_two_frames_makes():
    published = results.load_published()
    for agent in ("sac_simba", "simba_v2"):
        for updates in (1, 4, 8):  # a decision, as the files of their source count
            found = published[f"{agent}_utd{updates}"]
            assert found.action_repeat == 2 and found.updates_per_frame == updates / 2
            assert len(found.points) == 25 and f"{updates / 2:g} update" in found.title
    (at_100k,) = (p for p in published["sac_simba_utd1"].points[SWINGUP] if p.env_step == 100_000)
    assert (at_100k.num_seeds, at_100k.mean) == (5, 843.4)


def test_the_demos_rows_are_at_frames_where_its_page_and_its_flags_have_decisions():
    demo = OWN["mpo_demo+repeat=4"]
    assert demo.action_repeat == 4 and demo.updates_per_frame == pytest.approx(0.924 / 4)
    assert {env_name for env_name, _ in demo.trainings} == {SWINGUP}
    steps = sorted({row.env_step for row in demo.rows if row.metric == "avg_return"})
    assert steps[:3] == [0, 4_000, 8_000]  # --evaluation-period 1000
    assert demo.decisions[SWINGUP] == steps[-1] // 4


def test_the_table_of_sac_from_pixels_is_of_the_rows():
    (steps,) = (
        row[1:]
        for row in cells("docs/how-to/pixels.md")
        if row[0] == "environment steps" and "20,000" in row[-1]
    )
    (shown,) = (row[1:] for row in cells("docs/how-to/pixels.md") if row[0] == "preset `pixels`")
    returns = values("sac_pixels+repeat=8", f"{SWINGUP}/pixels", "avg_return")
    at = [returns[0, 8 * int(step.replace(",", ""))] for step in steps]
    assert shown == [f"{value:.0f}" for value in at]


def values(name, env_name, metric):
    """The values of a metric, by seed and step."""
    return {
        (row.seed, row.env_step): row.value
        for row in OWN[name].rows
        if (row.env_name, row.metric) == (env_name, metric)
    }


def cells(page):
    """The tables of a page, line by line and cell by cell, without bold."""
    lines = (REPOSITORY / page).read_text().replace("**", "").splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]


def test_the_table_of_mpo_is_of_the_rows():
    returns = values("mpo_control", SWINGUP, "avg_return")
    scores = values("mpo_control", SWINGUP, "final_return")
    stds = values("mpo_control", SWINGUP, "final_return_std")
    expected = [
        [
            str(seed),
            *(f"{returns[seed, steps]:.0f}" for steps in (20_000, 30_000, 40_000, 50_000)),
            f"{scores[seed, 50_000]} ± {stds[seed, 50_000]}",
        ]
        for seed in sorted({seed for seed, _ in returns})
    ]
    table = cells("docs/results.md")
    first = [row[0] for row in table].index("seed") + 2
    assert table[first : first + len(expected)] == expected


def test_the_table_of_wpo_beside_mpo_is_of_all_rows():
    names = "wpo_beside_mpo+repeat=4", "mpo_beside_wpo+repeat=4"
    expected = []
    for env_name, seed in sorted(OWN[names[0]].trainings):
        returns = [values(name, env_name, "avg_return") for name in names]
        at = [", ".join(f"{of[seed, steps]:.0f}" for steps in (20_000, 40_000)) for of in returns]
        expected.append([env_name.removeprefix("dm_control/"), str(seed), *at])
    assert [row for row in cells("agents/wpo/README.md") if row[1].isdigit()] == expected
    assert sorted(OWN[names[1]].trainings) == sorted(OWN[names[0]].trainings)


def test_the_table_of_recorded_data_is_of_the_rows():
    """Of all agents but BC, to which they are compared."""
    header, rule, *rows = offline.main(["--stored"]).split("\n\n")[0].splitlines()
    table = "\n".join([header, rule, *(row for row in rows if "| BC, " not in row)])
    assert f"\n\n{table}\n\n" in (REPOSITORY / "docs/results.md").read_text()
