import numpy as np
import pytest
from scipy import stats

from minerva_acme import plotting, results
from minerva_acme.plotting import report

WALKER, CHEETAH = "dm_control/walker/walk", "dm_control/cheetah/run"


def experiment(name, curves, **more):
    """An experiment of curves {step: return} by environment and seed."""
    rows = [
        results.Row(name, env, seed, "avg_return", step, float(value))
        for env, by_seed in curves.items()
        for seed, curve in by_seed.items()
        for step, value in curve.items()
    ]
    return results.Experiment(**{"exp_name": name, "rows": tuple(rows), "action_repeat": 1, **more})


def ends(*values, at=100_000):
    return {seed: {0: 0.0, at: value} for seed, value in enumerate(values)}


# Normalised 0.1, 0.2, 0.3, 0.4 and 0.5, 0.6.
OURS = experiment("ours", {WALKER: ends(100, 200, 300, 400), CHEETAH: ends(500, 600)})
THEIRS = experiment("theirs", {WALKER: ends(200, 200), CHEETAH: ends(550, 550)})


def table(made, title):
    (found,) = (one for one in made.tables if one.title.startswith(title))
    return {row[0]: dict(zip(found.columns[1:], row[1:], strict=True)) for row in found.rows}


def test_the_scores_are_the_interquartile_mean_over_runs_and_environments():
    scores = table(plotting.make_report([OURS, THEIRS]), "Scores on 2 environments at 100,000 frames")
    # Both environments weigh alike: four runs 0.75 and two 1.5 each. Of 6 in all, 1 is left out at either
    # end: 0.5 of 0.2, 0.75 of 0.3 and of 0.4, 1.5 of 0.5 and 0.5 of 0.6 are kept.
    assert scores["ours"]["IQM"] == f"{(0.1 + 0.75 * 0.7 + 0.75 + 0.3) / 4:.3f}" == "0.419"
    # The means of the environments are 0.25 and 0.55; of two both are the middle.
    assert scores["ours"]["mean"] == scores["ours"]["IQM of means"] == "0.400"
    assert scores["ours"]["runs"] == "6" and scores["theirs"]["runs"] == "4"
    # (0.2, 0.2, 0.55, 0.55) without the lowest and the highest; its seeds do not differ.
    assert scores["theirs"]["IQM"] == "0.375" and scores["theirs"]["95% interval"] == "0.375 to 0.375"
    low, high = map(float, scores["ours"]["95% interval"].split(" to "))
    assert 0.3 < low < 0.419 < high < 0.5


def test_an_environment_with_more_seeds_counts_no_more_than_another():
    generator = np.random.default_rng(0)

    def runs(easy, hard):
        scores = {WALKER: 900 + generator.normal(size=easy), CHEETAH: 50 + generator.normal(size=hard)}
        return {env: ends(*values) for env, values in scores.items()}

    made = plotting.make_report([experiment("x", runs(10, 2)), experiment("y", runs(2, 10))])
    for bar, group in zip(made.scores, made.aggregate.groups, strict=True):
        assert bar.value == pytest.approx(0.475, abs=0.002)  # the mean of both, and not one of them
        assert 0.47 < bar.interval[0] < bar.value < bar.interval[1] < 0.48
        assert group.mean.values[-1] == pytest.approx(bar.value, rel=1e-12)
    note = made.tables[0].note
    assert "all environments have equal weight" in note


def test_environments_with_too_few_seeds_are_left_out_and_the_report_says_so():
    made = plotting.make_report([OURS], min_seeds=3)
    assert [panel.title for panel in made.by_environment] == ["Walker walk"]
    assert table(made, "Scores on 1 environment at")["ours"]["runs"] == "4"
    assert "Left out, with fewer than 3 seeds of ours: Cheetah run." in made.notes
    everything = plotting.make_report([OURS], min_seeds=2)
    assert len(everything.by_environment) == 2 and not any("Left out" in note for note in everything.notes)
    with pytest.raises(
        ValueError, match="theirs must have an environment with at least 3 seeds, got at most 2"
    ):
        plotting.make_report([OURS, THEIRS], min_seeds=3)
    with pytest.raises(ValueError, match="`min_seeds` must be >= 1, got 0"):
        plotting.make_report([OURS], min_seeds=0)


def test_the_probability_of_improvement_is_of_each_pair_of_experiments():
    made = plotting.make_report([OURS, THEIRS])
    # On the first environment of 4 x 2 pairs 4 are won and 2 tie: 0.625. On the second half are won.
    assert table(made, "Probability")["ours > theirs"]["probability"] == f"{(0.625 + 0.5) / 2:.2f}"
    assert [bar.label for bar in made.improvements] == ["ours > theirs"]
    assert plotting.make_report([OURS]).improvements == []


def test_the_profile_is_the_share_of_runs_above_a_score():
    made = plotting.make_report([OURS])
    # Of the first environment's 0.1 to 0.4 a quarter is above 0.3, of the second's both.
    assert table(made, "Performance profile")["ours"][">0.3"] == f"{(1 / 4 + 1) / 2:.2f}"
    assert made.profiles["ours"].shares[0] == 1.0 and made.profiles["ours"].shares[-1] == 0.0


def test_the_table_of_environments_has_the_lowest_and_the_highest_seed():
    returns = table(plotting.make_report([OURS], against=["mpo"]), "Returns by environment at 100,000 frames")
    assert returns["Walker walk"]["ours"] == "250 [100, 400]"
    (mpo,) = plotting.published_curves(WALKER, ["mpo"])
    assert returns["Walker walk"]["MPO"] == f"{mpo.curve.values[list(mpo.curve.x).index(100_000)]:.0f}"


def test_published_results_have_the_means_that_they_are_known_by():
    scores = table(plotting.make_report([OURS], against=["mpo"]), "Scores")
    found = [plotting.published_curves(env, ["mpo"])[0].curve for env in (WALKER, CHEETAH)]
    at_100k = np.array([np.interp(100_000, *curve) for curve in found]) / 1000
    assert scores["MPO"]["IQM of means"] == f"{stats.trim_mean(at_100k, 0.25):.3f}"
    assert scores["MPO"]["IQM"] == scores["MPO"]["95% interval"] == "-"


def test_what_was_not_published_at_these_steps_is_in_no_comparison_and_that_is_said():
    early = experiment("early", {WALKER: ends(1, 2, at=10_000)})
    made = plotting.make_report([early], against=["mpo"])
    assert "MPO" not in table(made, "Scores")
    (note,) = made.notes
    assert note == f"Not compared, because nothing was published at these frames: MPO ({WALKER})."


def test_a_published_curve_is_read_only_from_where_it_begins_and_between_its_points():
    def report(step):
        made = plotting.make_report([OURS], against=["sac"], step=step)
        notes = [note for note in made.notes if "published" in note]
        return table(made, "Returns by environment")["Walker walk"].get("SAC of SimBa's paper"), notes, made

    (curve,) = (found.curve for found in plotting.published_curves(WALKER, ["sac"]))
    at_100k, at_200k = curve.values[:2]
    assert list(curve.x[:2]) == [100_000, 200_000] and at_200k > at_100k + 1.0
    shown, notes, made = report(50_000)
    missing = f"SAC of SimBa's paper ({CHEETAH}, {WALKER})"
    assert shown == "-" and "SAC of SimBa's paper" not in table(made, "Scores")
    assert notes == [f"Not compared, because nothing was published at these frames: {missing}."]
    shown, notes, made = report(100_000)
    assert shown == f"{at_100k:.0f}" and notes == []
    assert [curve.x[0] for _, curve in made.aggregate.published] == [100_000]
    assert [panel.published[0][1].x[0] for panel in made.by_environment] == [100_000] * 2


def test_what_is_interpolated_between_published_frames_is_told():
    long = experiment("long", {WALKER: ends(1, 2, at=150_000)})
    made = plotting.make_report([long], against=["sac", "sac_simba"])
    note = f"Interpolated, between the published frames before and after: SAC of SimBa's paper ({WALKER})."
    assert [one for one in made.notes if "Interpolated" in one] == [note]  # sac_simba has 150,000
    (curve,) = (found.curve for found in plotting.published_curves(WALKER, ["sac"]))
    shown = table(made, "Returns by environment")["Walker walk"]["SAC of SimBa's paper"]
    assert shown == f"{curve.values[:2].mean():.0f}"


def test_other_action_repeats_are_said_of_experiments_and_published_results():
    twice = experiment("twice", {WALKER: ends(1, 2), CHEETAH: ends(1, 2)}, action_repeat=2)
    unknown = experiment("unknown", {WALKER: ends(1, 2), CHEETAH: ends(1, 2)}, action_repeat=None)

    def repeats(experiments, *against):
        notes = plotting.make_report(experiments, against=against).notes
        return [note.partition(". ")[0] for note in notes if "repeats differ" in note]

    assert repeats([OURS], "sac", "mpo") == [
        "The action repeats differ: 1 of ours, MPO; 2 of SAC of SimBa's paper"
    ]
    assert repeats([OURS, twice, unknown]) == ["The action repeats differ: 1 of ours; 2 of twice"]
    assert repeats([twice], "sac", "fog") == repeats([OURS], "mpo") == repeats([unknown]) == []


def test_more_updates_a_frame_are_said_of_experiments_and_published_results():
    few, many, unknown = (
        experiment(name, {WALKER: ends(1, 2), CHEETAH: ends(1, 2)}, updates_per_frame=updates)
        for name, updates in (("few", 0.5), ("many", 1.0), ("unknown", None))
    )

    def updates(experiments, *against):
        notes = plotting.make_report(experiments, against=against).notes
        return [note for note in notes if note.startswith("More updates")]

    assert updates([few], "bro_utd10", "mpo", "dr_q") == [
        "More updates a frame than few, which makes 0.5: BRO with 10 updates 10."
    ]
    assert updates([many, few, unknown]) == ["More updates a frame than few, which makes 0.5: many 1."]
    assert updates([many], "simba_v2", "dr_q") == updates([unknown], "bro_utd10") == []


def test_scores_and_sources_say_repeat_and_updates_of_each():
    made = plotting.make_report(
        [experiment("x", {WALKER: ends(1, 2)}, updates_per_frame=0.25)], against=["dr_q", "mpo"]
    )
    scores, sources = table(made, "Scores"), table(made, "Published results")
    effort = {name: (row["repeat"], row["updates"]) for name, row in scores.items()}
    assert effort == {"x": ("1", "0.25"), "DR.Q": ("2", "0.5"), "MPO": ("1", "-")}
    shown = {name: (row["action repeat"], row["updates a frame"]) for name, row in sources.items()}
    assert shown == {"DR.Q": ("2", "0.5"), "MPO": ("1", "-")}


def test_scores_are_compared_at_the_last_step_that_all_runs_have_reached():
    short = experiment("short", {WALKER: {0: {0: 0.0, 40_000: 80.0}, 1: {0: 0.0, 100_000: 300.0}}})
    made = plotting.make_report([short, OURS])
    # At 40,000 steps: by interpolation 0.4 of the last return.
    assert table(made, "Returns")["Walker walk"]["short"] == "100 [80.0, 120]"
    assert table(made, "Returns")["Walker walk"]["ours"] == "100 [40.0, 160]"
    assert (
        f"{WALKER} is compared at 40,000 frames, where short seed 0 ends; others reach 100,000." in made.notes
    )
    assert f"Only some of the experiments have runs on {CHEETAH}: not compared." in made.notes
    at_20k = plotting.make_report([short, OURS], step=20_000)
    assert table(at_20k, "Returns by environment at 20,000")["Walker walk"]["short"] == "50.0 [40.0, 60.0]"


def test_an_environment_where_a_run_has_no_number_at_the_step_is_left_out():
    made = plotting.make_report(
        [experiment("x", {WALKER: ends(100, 200, at=50_000), CHEETAH: ends(500, 700)})], step=80_000
    )
    assert list(table(made, "Returns")) == ["Cheetah run"]
    assert f"{WALKER} is not compared: no value at 80,000 frames for x seed 0, x seed 1." in made.notes
    assert [panel.title for panel in made.by_environment] == ["Cheetah run", "Walker walk"]


def test_single_seeds_have_no_interval_and_make_others_too_narrow_which_is_said():
    alone = experiment("alone", {WALKER: ends(100), CHEETAH: ends(500)})
    made = plotting.make_report([alone, OURS])
    assert table(made, "Scores")["alone"]["95% interval"] == "-"
    assert made.notes[0].startswith("Intervals are too narrow: in 2 of 2 environments one of the experiments")


def test_of_one_run_each_no_interval_and_no_distribution_is_shown():
    alone, other = (experiment(name, {WALKER: ends(value)}) for name, value in [("a", 100), ("b", 200)])
    made = plotting.make_report([alone, other])
    assert table(made, "Scores")["a"] == {
        "runs": "1",
        "IQM": "0.100",
        "mean": "0.100",
        "IQM of means": "0.100",
        "repeat": "1",
        "updates": "-",
    }
    assert not made.profiles and not made.improvements
    titles = [one.title for one in made.tables]
    assert not [title for title in titles if title.startswith(("Performance", "Probability"))]
    assert made.notes[0].startswith("Without intervals: each experiment has a single seed")


def test_a_final_score_is_the_last_point_unless_there_was_an_evaluation():
    rows = [
        results.Row("x", WALKER, 0, "final_return", 100, 9.0),
        results.Row("x", WALKER, 0, "avg_return", 50, 5.0),
        results.Row("x", WALKER, 1, "final_return", 100, 9.0),
        results.Row("x", WALKER, 1, "avg_return", 100, 7.0),
        results.Row("x", WALKER, 1, "learner_steps", 100, 25.0),
    ]
    runs = report.read_runs(results.Experiment(exp_name="x", rows=tuple(rows)))[WALKER]
    assert {seed: (list(run.x), list(run.values)) for seed, run in runs.items()} == {
        0: ([50, 100], [5.0, 9.0]),
        1: ([100], [7.0]),
    }


def test_environments_of_other_suites_need_a_range():
    cartpole = experiment("x", {"CartPole-v1": ends(100, 300)})
    with pytest.raises(
        ValueError, match="range of returns of CartPole-v1 must be known, .* --range CartPole"
    ):
        plotting.make_report([cartpole])
    made = plotting.make_report([cartpole], ranges={"CartPole-v1": (0.0, 500.0)})
    assert table(made, "Scores")["x"]["mean"] == "0.400"
    assert made.aggregate is None  # of one environment
    with pytest.raises(ValueError, match="must increase, got 5 to 5"):
        plotting.make_report([cartpole], ranges={"CartPole-v1": (5.0, 5.0)})


def test_the_curves_of_all_environments_are_on_one_scale_with_published_ones_behind():
    made = plotting.make_report([OURS], against=["mpo"])
    (group,) = made.aggregate.groups
    assert group.seeds_by_task == [2, 4] and group.mean.values[-1] == pytest.approx(1.675 / 4)
    ((label, curve),) = made.aggregate.published
    assert label == "MPO, published" and curve.values.max() <= 1.0
    assert [panel.published[0][0] for panel in made.by_environment] == ["MPO, published"] * 2


def test_runs_without_a_common_step_are_told_and_the_others_shown():
    apart = experiment("apart", {WALKER: {0: {35: 1.0}, 1: {50: 2.0}}, CHEETAH: ends(1, 2)})
    made = plotting.make_report([apart])
    assert [panel.title for panel in made.by_environment] == ["Cheetah run"]
    assert f"The runs of apart on {WALKER} have no step in common: not drawn." in made.notes


def test_where_a_curve_over_all_environments_ends_or_why_there_is_none_is_told():
    whole = experiment("whole", {WALKER: ends(1, 2), CHEETAH: ends(3, 4)})
    cut = experiment(
        "cut",
        {
            WALKER: ends(100, 200),
            CHEETAH: {0: {0: 0.0, 40_000: 300.0, 60_000: 1.0}, 3: {0: 0.0, 40_000: 500.0}},
        },
    )
    met = experiment("met", {WALKER: ends(100, 200), CHEETAH: {5: {100_000: 300.0}}})
    apart = experiment("apart", {WALKER: ends(100, at=80_000), CHEETAH: {2: {90_000: 300.0, 100_000: 9.0}}})
    made = plotting.make_report([whole, cut], against=["mpo"])
    assert [group.mean.x[-1] for group in made.aggregate.groups] == [100_000, 40_000]
    told = "The curve of {} on 2 environments ends at {} frames with {}; others continue to {}."
    cut_note = told.format("cut", "40,000", f"{CHEETAH} seed 3", "100,000")
    assert [note for note in made.notes if note.startswith("The curve of")] == [cut_note]
    made = plotting.make_report([apart, met, whole], step=100_000, against=["mpo"])
    assert made.aggregate is None  # only one environment is compared
    assert not any("curve of" in note for note in made.notes)

    made = plotting.make_report([met, apart])
    assert {group.label: list(group.mean.x) for group in made.aggregate.groups} == {"met": [100_000]}
    assert [note for note in made.notes if "curve of" in note] == [
        f"The curve of met on 2 environments is the point at 100,000 frames, the last of {CHEETAH} seed 5 "
        f"and the first of {CHEETAH} seed 5.",
        f"There is no curve of apart on 2 environments: {WALKER} seed 0 ends at 80,000 frames, before "
        f"{CHEETAH} seed 2 begins at 90,000.",
    ]
    made = plotting.make_report([apart])
    assert made.aggregate is None and sum("no curve of apart" in note for note in made.notes) == 1


def test_a_published_curve_over_all_environments_that_ends_before_the_runs_is_told():
    longest = {
        env: plotting.published_curves(env, ["mpo"])[0].curve.x[-1]
        for env in (WALKER, "dm_control/humanoid/run")
    }
    assert longest[WALKER] < longest["dm_control/humanoid/run"]

    def notes(at):
        long = experiment("long", {env: {0: {50_000: 1.0, 100_000: 2.0, at: 3.0}} for env in longest})
        made = plotting.make_report([long], step=100_000, against=["mpo"])
        return [note for note in made.notes if "The curve of" in note]

    assert notes(longest[WALKER]) == []
    assert notes(longest[WALKER] + 1) == [
        f"The curve of MPO, published on 2 environments ends at {longest[WALKER]:,.0f} frames with {WALKER}; "
        f"others continue to {longest['dm_control/humanoid/run']:,.0f}."
    ]


def test_random_actions_are_in_the_panel_of_their_environment():
    random = (results.Row("ours", WALKER, seed, "random_return", 0, 30.0 + seed) for seed in (0, 1))
    made = plotting.make_report(
        [results.Experiment(exp_name="ours", rows=(*OURS.rows, *random), action_repeat=1)]
    )
    assert {panel.title: panel.random for panel in made.by_environment} == {
        "Cheetah run": None,
        "Walker walk": 30.5,
    }


def test_the_page_says_what_produced_the_runs():
    context = results.Context(frozenset({(WALKER, 0)}), "0.1.0", "abc1234", {"torch": "2.13.0"}, "a laptop")
    spent = tuple(
        results.Row("x", WALKER, seed, "cpu_seconds", step, value)
        for seed, step, value in ((0, 50, 9.0), (0, 100, 60.0), (1, 100, 80.0))
    )
    made = experiment("x", {WALKER: ends(1, 2)}, contexts=(context,), commands={WALKER: "minerva train"})
    made = results.Experiment(**{**vars(made), "rows": (*made.rows, *spent), "updates_per_frame": 0.25})
    shown = table(plotting.make_report([made]), "What produced them")["x"]
    assert shown["CPU time"] == "70" and shown["wall time"] == "-"
    assert (shown["machine"], shown["version"]) == ("a laptop", "0.1.0 abc1234")
    assert (shown["packages"], shown["commands"]) == ("torch 2.13.0", "minerva train")
    assert (shown["updates a frame"], shown["action repeat"]) == ("0.25", "1")
    assert shown["decisions"] == "Walker walk 100,000"
    sources = table(plotting.make_report([made], against=["mpo"]), "Published results")
    assert sources["MPO"]["commit"] == "423291a" and "github.com" in sources["MPO"]["source"]


def test_a_report_made_twice_is_the_same():
    generator = np.random.default_rng(0)
    both = [
        experiment(name, {env: ends(*generator.uniform(0, 1000, 7)) for env in (WALKER, CHEETAH)})
        for name in "ab"
    ]
    one, two, other = (plotting.make_report(both, seed=seed) for seed in (0, 0, 1))
    assert one.tables == two.tables and one.scores == two.scores and one.improvements == two.improvements
    assert other.improvements != one.improvements and other.scores != one.scores


@pytest.mark.parametrize(
    ("experiments", "settings", "message"),
    [
        ([], {}, "`experiments` must hold at least one, got none"),
        ([OURS], {"against": ["acme"]}, "`against` must be among mpo, .* or none, got 'acme'"),
        (
            [OURS],
            {"step": 200_000},
            "must be an environment in which all runs .* no value at 200,000 frames",
        ),
        (
            [OURS, experiment("x", {"dm_control/dog/run": ends(1)})],
            {},
            "must have an environment in common, got none for ours, x. Report them separately",
        ),
        (
            [results.Experiment(exp_name="x", rows=(results.Row("x", WALKER, 0, "loss", 1, 1.0),))],
            {},
            "x must have rows of `avg_return` or `final_return`, got loss",
        ),
    ],
)
def test_what_cannot_be_reported_is_told(experiments, settings, message):
    with pytest.raises(ValueError, match=message):
        plotting.make_report(experiments, **settings)


def test_learner_steps_of_runs_without_play_are_not_compared_with_frames():
    offline = {"counts": "learner steps", "updates_per_frame": None}
    one = experiment("one", {WALKER: {**ends(100, 300), 2: {0: 0.0, 50: 200.0}}}, **offline)
    with pytest.raises(ValueError, match="got frames of ours and learner steps of one"):
        plotting.make_report([OURS, one])
    made = plotting.make_report([one], against=["sac"])
    assert "Not compared with published results, which count frames, not learner steps." in made.notes
    (compared,) = (note for note in made.notes if "is compared at" in note)
    assert compared.startswith(f"{WALKER} is compared at 50 learner steps, where one seed 2 ends")
    assert made.x_label == "Learner steps"
    titles = [one.title for one in made.tables]
    assert "Scores on 1 environment at 50 learner steps" in titles and "frames" not in " ".join(titles)
