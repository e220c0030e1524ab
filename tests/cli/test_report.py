import re

import pytest

from minerva_acme import results
from minerva_acme.cli import main
from minerva_acme.plotting import report_figures

WALKER, CHEETAH = "dm_control/walker/walk", "dm_control/cheetah/run"


def rows(name, offset=0.0, seeds=(0, 1, 2)):
    return [
        results.Row(name, env, seed, "avg_return", step, step / 1000 + 10 * seed + offset)
        for env in (WALKER, CHEETAH)
        for seed in seeds
        for step in (0, 100_000, 200_000)
    ]


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text(results.format_rows(rows("ours") + rows("theirs", 50.0)))
    return path


@pytest.mark.promise("Reports")
def test_a_report_is_tables_a_page_and_pictures_and_can_be_made_from_its_own_rows(
    table, tmp_path, call, unpainted
):
    out = tmp_path / "report"
    status, shown, _ = call("report", table, "--against", "mpo,sac", "bro_utd2", "--output", out)
    assert status == 0
    pictures = ("environments", "improvement", "performance_profile", "sample_efficiency", "scores")
    files = [f"{name}.{kind}" for name in pictures for kind in ("pdf", "svg")]
    assert sorted(path.name for path in out.iterdir()) == sorted([*files, "index.html", "rows", "tables.md"])
    assert "Scores on 2 environments at 200,000 frames" in shown
    assert re.search(r"ours > theirs\s+0\.\d\d\s+0\.\d\d to 0\.\d\d", shown)
    page = (out / "index.html").read_text()
    assert page.count("data:image/svg+xml") == 5 and "BRO with 2 updates" in page
    assert "https://github.com/danijar/dreamerv3" in page
    assert sorted(path.name for path in (out / "rows").iterdir()) == [
        f"{name}.{kind}" for name in ("ours", "theirs") for kind in ("csv", "json")
    ]
    unpainted()
    again = tmp_path / "again"
    assert call("report", out / "rows", "--against", "mpo", "sac", "bro_utd2", "--output", again)[0] == 0
    for name in ("tables.md", "rows/ours.csv", "rows/theirs.csv"):
        assert (again / name).read_bytes() == (out / name).read_bytes()
    # A report of one experiment, which improves on nothing.
    ours = out / "rows" / "ours.csv"
    status, shown, _ = call("report", ours, "--against", "none", "--output", tmp_path / "third")
    assert status == 0 and "MPO" not in shown


def test_a_figure_has_at_most_as_many_panels_as_a_reader_takes_in(
    table, tmp_path, call, monkeypatch, unpainted
):
    unpainted()
    monkeypatch.setattr(report_figures, "_MOST_PANELS", 1)
    assert call("report", table, "--against", "none", "--output", tmp_path / "out")[0] == 0
    drawn = sorted(path.name for path in (tmp_path / "out").glob("environments*.svg"))
    assert drawn == ["environments.svg", "environments_2.svg"]
    assert (tmp_path / "out" / "index.html").read_text().count('alt="Environments"') == 2


def test_the_rows_of_a_report_know_what_made_them_and_what_their_steps_count(tmp_path, call, unpainted):
    unpainted()
    learned = results.Experiment(
        exp_name="learned",
        rows=tuple(rows("learned")),
        commands={WALKER: "minerva train bc", CHEETAH: "minerva train bc --seed {seed}"},
        contexts=(
            results.Context(
                frozenset({(WALKER, 0), (CHEETAH, 2)}), "0.1.0", "abc", {"torch": "2"}, "a laptop"
            ),
        ),
        action_repeat=2,
        counts="learner steps",
        notes="Seed 1 failed.",
    )
    played = results.Experiment(
        exp_name="Played (by others)",
        rows=tuple(rows("Played (by others)")),
        action_repeat=4,
        updates_per_frame=0.25,
    )
    for one in (learned, played):
        results.write(tmp_path / one.counts, one, "stored")
        out, again = tmp_path / f"{one.counts} report", tmp_path / f"{one.counts} again"
        assert call("report", tmp_path / one.counts, "--against", "sac", "--output", out)[0] == 0
        status, shown, _ = call("report", out / "rows", "--against", "sac", "--output", again)
        assert status == 0 and (again / "index.html").read_bytes() == (out / "index.html").read_bytes()
        assert ("at 200,000 learner steps" in shown) == ("not learner steps" in shown) == (one is learned)
        (path,) = (again / "rows").glob("*.csv")
        (read,) = results.read(path)
        assert (read.counts, read.action_repeat, read.updates_per_frame, read.commands, read.notes) == (
            one.counts,
            one.action_repeat,
            one.updates_per_frame,
            one.commands,
            one.notes,
        )
        assert sorted(read.rows) == sorted(one.rows)


def test_rows_of_an_earlier_report_in_the_same_folder_are_told(table, tmp_path, call, unpainted):
    unpainted()
    out = tmp_path / "report"
    _, shown, _ = call("report", table, "--against", "none", "--output", out)
    assert "also has rows" not in shown
    ours = tmp_path / "ours.csv"
    ours.write_text(results.format_rows(rows("ours")))
    _, shown, _ = call("report", ours, "--against", "none", "--output", out)
    told = " ".join(shown.split())
    assert f"{out}/rows also has rows of an earlier report: theirs.csv. Remove " in told
    assert (out / "rows" / "theirs.csv").exists()


def test_the_page_starts_with_results_and_has_no_heading_twice(table, tmp_path, call, unpainted):
    unpainted()
    out = tmp_path / "report"
    table.write_text(results.format_rows(rows("ours") + rows("theirs", seeds=(0,))))  # which has a note
    assert call("report", table, "--against", "mpo", "--output", out)[0] == 0
    page = (out / "index.html").read_text()
    headings = re.findall("<h2>(.*?)</h2>", page)
    assert headings == [
        "Scores on 2 environments at 200,000 frames",
        "Sample efficiency",
        "Performance profile",
        "Probability of improvement",
        "Returns by environment at 200,000 frames",
        "Notes",
        "What produced them",
        "Published results",
    ]
    of_scores = page[page.index("<h1>") : page.index("Sample efficiency</h2>")]
    assert of_scores.count("<img") == of_scores.count("<table>") == 1
    assert page.count('<div class="wide"') == page.count("<img") + page.count("<table>") == 11


@pytest.mark.parametrize("width", [40, 80])
def test_no_column_is_lost_in_a_narrow_terminal(table, tmp_path, capsys, unpainted, monkeypatch, width):
    unpainted()
    monkeypatch.setenv("COLUMNS", str(width))
    heads = {"mpo": "MPO", "sac": "SimBa's", "dr_q": "DR.Q", "bro_utd10": "updates", "simba_v2": "SimbaV2"}
    out = tmp_path / "report"
    assert main(["report", str(table), "--against", *heads, "--output", str(out)]) == 0
    _, _, shown = capsys.readouterr().out.partition("Returns by environment")
    lines = shown.partition("Interquartile mean over the seeds")[0].splitlines()[1:]
    assert max(map(len, lines)) <= width
    assert all(
        sum(word in line.split() for line in lines) == 1 for word in ("ours", "theirs", *heads.values())
    )
    cells = [cell for line in lines if line.startswith("Walker walk") for cell in line.split()[2:]]
    tables = (out / "tables.md").read_text().splitlines()
    (row,) = (line for line in tables if line.startswith("| Walker walk"))
    assert cells == row.replace("|", " ").split()[2:]


def test_only_the_chosen_environments_are_compared(table, tmp_path, call, unpainted):
    unpainted()
    out = tmp_path / "report"
    status, shown, _ = call("report", table, "--env", WALKER, "--against", "none", "--output", out)
    assert status == 0 and "Scores on 1 environment at" in shown and "Cheetah run" not in shown
    read = [one for path in (out / "rows").glob("*.csv") for one in results.read(path)]
    assert {row.env_name for one in read for row in one.rows} == {WALKER} and len(read) == 2
    status, _, err = call("report", table, "--env", WALKER, "walker/run", "--output", tmp_path / "other")
    assert status == 2 and f"`env` must be among {CHEETAH}, {WALKER}, got walker/run" in err


def test_a_run_is_reported_beside_an_experiment_of_the_library(trained, tmp_path, call, unpainted):
    unpainted()
    out = tmp_path / "report"
    # Without a name it is the range of the one environment.
    status, shown, _ = call("report", trained, "--range", "-2000:0", "--output", out)
    assert status == 0
    assert "Without intervals: each experiment has a single seed" in shown
    assert "95%" not in shown and "Performance profile" not in shown
    assert "published" not in shown  # nothing was, for it
    files = {path.name for path in out.iterdir()}
    assert "scores.svg" in files and "performance_profile.svg" not in files  # of one run
    assert "sample_efficiency.svg" not in files  # of one environment
    named = ("--range", "Pendulum-v1=-2000:0", "--output", out)
    status, _, err = call("report", trained, "ppo_control", *named)
    assert status == 2 and "must have an environment in common" in err


def test_an_experiment_is_compared_with_what_its_agent_is_compared_with(tmp_path, call, unpainted):
    unpainted()
    status, shown, _ = call("report", "mpo_control", "--output", tmp_path / "report")
    assert status == 0 and "DMPO" in shown and "0.911" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "At least one result must be given, got none. .* mpo_control"),
        (
            ["nothing"],
            "no file or folder /.*nothing, and no experiment 'nothing' in the library. For all names: "
            "minerva report$",
        ),
        (["mpo_contrl"], "no experiment 'mpo_contrl' in the library. Did you mean 'mpo_control'"),
        (["<table>", "<table>"], "ours on .*run with seed 0 is given twice, the second time in"),
        (["<empty>"], "There is no run in .*empty: run.json is missing"),
        (["<table>", "--against", "acme"], "`against` must be among .* got 'acme'"),
        (
            ["<table>", "--range", "Pendulum"],
            "`range` must be ENVIRONMENT=LOWEST:HIGHEST, such as .*'Pendulum'",
        ),
        (
            ["<table>", "--range", "0:1"],
            "`range` must name its environment, one of .*, .*, because there are",
        ),
        (["<table>", "--range", "a=1:b"], "`range` must be ENVIRONMENT=LOWEST:HIGHEST"),
        (["<table>", "--step", "5k"], "`--step` must be a whole number, got '5k'"),
        (
            ["<table>", "--min-seeds", "4"],
            "ours must have an environment with at least 4 seeds, got at most 3",
        ),
    ],
)
def test_a_mistake_is_told_and_nothing_is_written(table, tmp_path, call, arguments, message):
    (tmp_path / "empty").mkdir()
    places = {"<table>": str(table), "<empty>": str(tmp_path / "empty")}
    arguments = [places.get(word, word) for word in arguments]
    status, _, err = call("report", *arguments, "--output", tmp_path / "out")
    assert status == 2 and re.search(message, err)
    assert not (tmp_path / "out").exists()
