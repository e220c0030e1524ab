import numpy as np
import pytest
from scipy import stats

from minerva_acme import plotting


@pytest.mark.parametrize("num_scores", [1, 2, 3, 4, 5, 7, 8, 30, 101])
def test_the_interquartile_mean_is_scipys_mean_trimmed_by_a_quarter(num_scores):
    scores = np.random.default_rng(num_scores).normal(size=(6, num_scores))
    expected = stats.trim_mean(scores, 0.25, axis=1)
    np.testing.assert_allclose(plotting.interquartile_mean(scores), expected, rtol=1e-12)


def test_the_interquartile_mean_by_hand():
    assert plotting.interquartile_mean([1000.0, 2.0, -50.0, 4.0]) == 3.0
    # floor(5 / 4) = 1 is left out at either end.
    assert plotting.interquartile_mean([0.0, 1.0, 2.0, 6.0, 900.0]) == 3.0
    assert plotting.interquartile_mean([7.0]) == 7.0


def test_an_outlier_among_four_seeds_does_not_move_the_interquartile_mean():
    for outlier in (1e9, np.inf):
        assert plotting.interquartile_mean([1.0, 2.0, 3.0, outlier]) == 2.5


def test_scores_of_whole_weights_are_that_many_equal_scores():
    generator = np.random.default_rng(0)
    for num_scores in (1, 3, 6, 11):
        scores = generator.normal(size=(5, num_scores))
        weights = generator.integers(1, 4, num_scores)
        repeats = 4 * num_scores  # then a quarter of the scores is a quarter of the weight on either side
        copies = np.repeat(scores, repeats * weights, axis=1)
        # As many are left out as of the scores themselves, which is not quite a quarter.
        cut = num_scores // 4 * copies.shape[1] // num_scores
        expected = np.sort(copies)[:, cut : copies.shape[1] - cut].mean(axis=1)
        found = plotting.interquartile_mean(scores, weights / 7)
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_every_task_counts_alike_whatever_its_number_of_seeds():
    generator = np.random.default_rng(1)
    for num_tasks, num_seeds in ((1, 7), (3, 5), (4, 2), (7, 3)):
        scores = generator.normal(size=(num_tasks, num_seeds))
        found = plotting.interquartile_mean(scores.ravel(), np.full(scores.size, 1 / num_seeds))
        assert found == pytest.approx(stats.trim_mean(scores, 0.25, axis=None), rel=1e-12)
    # Twelve runs, of which three are left out at either end: half of each task.
    easy, hard = generator.uniform(0.89, 0.91, 10), generator.uniform(0.05, 0.07, 2)
    weights = np.array([1 / 10] * 10 + [1 / 2] * 2)
    expected = (np.sort(easy)[:5].mean() + hard.max()) / 2
    assert plotting.interquartile_mean([*easy, *hard], weights) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("weights", [[1.0], [1.0, 0.0, 2.0], [[1.0, 1.0, 1.0]], [1.0, np.nan, 1.0]])
def test_weights_that_are_not_one_positive_number_for_each_score_are_refused(weights):
    with pytest.raises(ValueError, match=r"`weights` must be 3 numbers > 0, one for each score, got"):
        plotting.interquartile_mean(np.zeros((2, 3)), weights)


@pytest.mark.parametrize("scores", [[], np.zeros((3, 0)), 1.0])
def test_no_scores_have_no_mean(scores):
    with pytest.raises(ValueError, match=r"`scores` must have shape \[\.\.\., N\] with N >= 1"):
        plotting.interquartile_mean(scores)


def interval(*scores_by_task, seed=0, **settings):
    return plotting.bootstrap_interval(scores_by_task, generator=np.random.default_rng(seed), **settings)


def test_the_interval_of_three_seeds_is_their_range():
    # 1 resample in 27 holds the lowest seed alone: more than the 1 in 40 that is cut off.
    low, high = interval(np.array([[1.0, 30.0], [5.0, 20.0], [2.0, 10.0]]))
    np.testing.assert_array_equal(low, [1.0, 10.0])
    np.testing.assert_array_equal(high, [5.0, 30.0])


def test_the_interval_of_many_scores_is_scipys():
    scores = np.random.default_rng(1).normal(10.0, 2.0, size=(400, 1))
    low, high = interval(scores)
    resampled = stats.bootstrap(
        (scores[:, 0],),
        lambda x, axis: stats.trim_mean(x, 0.25, axis=axis),
        method="percentile",
        n_resamples=4000,
        random_state=2,
    ).confidence_interval
    np.testing.assert_allclose([low[0], high[0]], resampled, atol=0.03)


def test_one_seed_of_each_task_has_no_interval():
    assert interval(np.ones((1, 3)), np.zeros((1, 3))) is None


def test_seeds_are_drawn_within_their_task():
    # Each task's seeds are equal: whatever is drawn, the mean over tasks stays. Drawn across tasks, some
    # resamples would be all zeros.
    low, high = interval(np.zeros((3, 1)), np.ones((3, 1)))
    assert low[0] == high[0] == 0.5


def test_the_interval_of_several_tasks_is_of_their_seeds_together():
    # (3 seeds and 1): a task with a single seed gives that one to every resample.
    low, high = interval(np.array([[0.0], [3.0], [6.0]]), np.array([[100.0]]))
    # It weighs as much as the other three: of four, 1 is left out at either end and 1 of it is kept, with 1
    # of the first task, whose resamples may be all 0 or all 6.
    assert (low[0], high[0]) == (50.0, 53.0)


def test_a_seed_is_drawn_as_a_whole_curve():
    scores = np.random.default_rng(0).normal(size=(6, 1))
    low, high = interval(np.repeat(scores, 5, axis=1))
    assert len(set(low)) == len(set(high)) == 1


def test_the_same_generator_gives_the_same_interval():
    scores = np.random.default_rng(0).normal(size=(7, 4))
    np.testing.assert_array_equal(interval(scores, seed=3), interval(scores, seed=3))
    assert not np.array_equal(interval(scores, seed=3), interval(scores, seed=4))


def coverage(num_seeds, num_tasks, num_trials=300):
    generator = np.random.default_rng(num_seeds)
    hits = 0
    for _ in range(num_trials):
        tasks = [generator.normal(size=(num_seeds, 1)) for _ in range(num_tasks)]
        low, high = plotting.bootstrap_interval(tasks, generator=generator, num_resamples=400)
        hits += low[0] <= 0.0 <= high[0]
    return hits / num_trials


def test_ten_seeds_intervals_hold_the_truth_about_as_often_as_they_say():
    # The percentile bootstrap of ten scores is known to be a little too narrow.
    assert 0.86 <= coverage(num_seeds=10, num_tasks=1) <= 0.98
    assert 0.90 <= coverage(num_seeds=5, num_tasks=8) <= 0.99


@pytest.mark.parametrize("num_seeds", [2, 3])
def test_the_coverage_that_is_told_of_few_seeds_is_what_comes_out(num_seeds):
    assert coverage(num_seeds, 1) == pytest.approx(plotting.nominal_coverage(num_seeds), abs=0.07)


def test_no_coverage_is_told_where_the_interval_is_not_the_range():
    assert [plotting.nominal_coverage(count) for count in (1, 2, 3, 4, 10)] == [None, 0.5, 0.75, None, None]


@pytest.mark.parametrize(
    ("scores", "settings", "message"),
    [
        ([], {}, "`scores_by_task` must be arrays .seeds, steps. with the same steps, got shapes"),
        ([np.zeros(3)], {}, "`scores_by_task` must be arrays"),
        ([np.zeros((2, 3)), np.zeros((2, 4))], {}, "`scores_by_task` must be arrays"),
        ([np.zeros((2, 3))], {"confidence": 1.0}, "`confidence` must be in .0, 1., got 1.0"),
        ([np.zeros((2, 3))], {"num_resamples": 0}, "`num_resamples` must be >= 1, got 0"),
    ],
)
def test_a_wrong_argument_of_the_bootstrap_is_told(scores, settings, message):
    with pytest.raises(ValueError, match=message):
        interval(*scores, **settings)


def profile(*scores_by_task, thresholds):
    return plotting.performance_profile(scores_by_task, thresholds, generator=np.random.default_rng(0))


def test_the_profile_by_hand():
    # Above 0.25 are 3 of 4 runs, above 0.5 only 0.9, for the 0.5 is not above itself; above 0.9 none.
    found = profile([0.1, 0.3], [0.5, 0.9], thresholds=[0.0, 0.25, 0.5, 0.9])
    np.testing.assert_allclose(found.shares, [1.0, 0.75, 0.25, 0.0])
    assert found.interval is not None
    # Of the first task no, one or both runs of a resample are above 0.25; of the second always both.
    np.testing.assert_allclose([found.interval.low[1], found.interval.high[1]], [0.5, 1.0])
    np.testing.assert_allclose([found.interval.low[0], found.interval.high[3]], [1.0, 0.0])


def test_every_task_counts_alike_in_a_profile():
    # (1/3 + 1) / 2, though two of four runs are above 0.5.
    found = profile([0.1, 0.2, 0.6], [0.9], thresholds=[0.5])
    np.testing.assert_allclose(found.shares, [2 / 3])


def test_the_profile_of_equally_many_seeds_is_the_share_of_all_runs():
    scores = np.random.default_rng(3).uniform(size=(6, 5))
    thresholds = np.linspace(0, 1, 21)
    found = profile(*scores, thresholds=thresholds)
    np.testing.assert_allclose(found.shares, [(scores > tau).mean() for tau in thresholds])
    assert np.all(found.interval.low <= found.shares) and np.all(found.shares <= found.interval.high)


def test_a_profile_of_single_seeds_has_no_interval():
    assert profile([0.1], [0.3], thresholds=[0.2]).interval is None


def improvement(ours, others, seed=0, **settings):
    generator = np.random.default_rng(seed)
    return plotting.probability_of_improvement(ours, others, generator=generator, **settings)


def test_the_probability_of_improvement_by_hand():
    # Of the pairs of 1, 3 with 2, 3: 1 wins none, 3 wins against 2 and ties with 3, so 1.5 of 4.
    assert improvement([[1.0, 3.0]], [[2.0, 3.0]]).probability == 1.5 / 4
    # With a task that is always won: (0.375 + 1) / 2.
    found = improvement([[1.0, 3.0], [9.0]], [[2.0, 3.0], [1.0, 2.0, 3.0]])
    assert found.probability == (0.375 + 1.0) / 2
    assert improvement([[2.0], [2.0]], [[2.0], [1.0]]) == (0.75, None)


def test_the_probability_of_improvement_is_the_mean_of_scipys_u_statistics():
    generator = np.random.default_rng(5)
    ours = [generator.integers(0, 6, size=size).astype(float) for size in (3, 5, 8)]
    others = [generator.integers(0, 6, size=size).astype(float) for size in (4, 2, 8)]
    expected = np.mean(
        [stats.mannwhitneyu(x, y).statistic / (len(x) * len(y)) for x, y in zip(ours, others, strict=True)]
    )
    found = improvement(ours, others)
    assert found.probability == pytest.approx(expected, rel=1e-12)
    opposite = improvement(others, ours)
    assert found.probability + opposite.probability == pytest.approx(1.0)


def test_the_interval_of_an_improvement_resamples_both_agents_within_each_task():
    # A task that is certain adds its half to every resample. In the other one the others always draw 2, and
    # the own seeds 1 and 3 become (1, 1) in a quarter of the resamples, (3, 3) in a quarter.
    found = improvement([[1.0, 3.0], [9.0, 9.0]], [[2.0, 2.0], [0.0, 0.0]])
    assert (found.probability, found.interval) == (0.75, (0.5, 1.0))
    # Equal seeds of one's own: what varies is which of the others is drawn.
    found = improvement([[2.0, 2.0]], [[1.0, 3.0]], confidence=0.6)
    assert (found.probability, found.interval) == (0.5, (0.0, 1.0))


def test_the_interval_of_an_improvement_holds_the_truth_about_as_often_as_it_says():
    generator = np.random.default_rng(0)
    hits = 0
    for _ in range(200):
        ours, others = generator.normal(size=(2, 6, 8))
        found = plotting.probability_of_improvement(ours, others, generator=generator, num_resamples=300)
        hits += found.interval[0] <= 0.5 <= found.interval[1]
    assert 0.88 <= hits / 200 <= 1.0


def test_the_same_generator_gives_the_same_comparisons():
    generator = np.random.default_rng(0)
    ours, others = generator.normal(size=(2, 4, 5))
    assert improvement(ours, others, seed=1) == improvement(ours, others, seed=1)
    assert improvement(ours, others, seed=1) != improvement(ours, others, seed=2)


@pytest.mark.parametrize(
    ("ours", "others", "message"),
    [
        ([], [], "`scores_by_task` must be arrays"),
        ([[1.0]], [[]], "`others_by_task` must be arrays"),
        ([[1.0]], [[1.0], [2.0]], "`others_by_task` must have the tasks of `scores_by_task`, got 2 and 1"),
    ],
)
def test_agents_that_cannot_be_compared_are_told(ours, others, message):
    with pytest.raises(ValueError, match=message):
        improvement(ours, others)


def test_another_statistic_has_its_own_interval():
    scores = np.random.default_rng(1).normal(10.0, 2.0, size=(300, 1))
    low, high = interval(scores, statistic=lambda values, weights: values @ weights / len(weights))
    resampled = stats.bootstrap(
        (scores[:, 0],), np.mean, method="percentile", n_resamples=4000, random_state=2
    ).confidence_interval
    np.testing.assert_allclose([low[0], high[0]], resampled, atol=0.03)
