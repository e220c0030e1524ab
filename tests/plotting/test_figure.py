import io
import itertools
import re
import subprocess
import sys

import matplotlib.colors
import numpy as np
import pytest
from matplotlib.text import Text
from PIL import Image

from minerva_acme import plotting
from minerva_acme.plotting import figure, front, report_figures


def group(label="PPO", num_seeds=3, steps=(0, 50_000, 100_000), tasks=1):
    generator = np.random.default_rng(num_seeds)
    curves = [
        [
            plotting.Curve(np.array(steps, float), generator.uniform(0, 500, len(steps)))
            for _ in range(num_seeds)
        ]
        for _ in range(tasks)
    ]
    return plotting.make_group(label, curves, generator)


def published(*steps):
    return ("MPO, published", plotting.Curve(np.array(steps, float), np.linspace(0, 900, len(steps))))


def legend_lines(drawn):
    return [line for line in drawn.legends[0].get_lines() if line.get_color() != figure._GREY]


def legend_of(drawn):
    """What the legend says, after the names at the ends of curves, from the highest."""
    names = [text.get_text() for text in drawn.axes[0].texts[::-1]]
    return names + [text.get_text() for text in drawn.legends[0].get_texts()]


def test_a_group_is_the_interquartile_mean_and_the_interval_over_its_seeds():
    curves = [plotting.Curve(np.array([0.0, 1.0]), np.array([0.0, value])) for value in (1.0, 2.0, 3.0, 50.0)]
    made = plotting.make_group("MPO", [curves], np.random.default_rng(0))
    np.testing.assert_array_equal(made.mean.values, [0.0, 2.5])
    assert made.interval is not None and made.interval.low[1] < 2.5 < made.interval.high[1]
    assert made.seeds_by_task == [4]


BOOTSTRAP = "95% bootstrap interval"
RANGE = "{} interval of the median (range of the seeds)"


@pytest.mark.parametrize(
    ("groups", "seeds", "band"),
    [
        ([group(num_seeds=1)], "1 seed", None),
        ([group(num_seeds=2)], "2 seeds", RANGE.format("50%")),
        ([group(num_seeds=3)], "3 seeds", RANGE.format("75%")),
        ([group(num_seeds=2), group(num_seeds=3)], "2-3 seeds", RANGE.format("50% to 75%")),
        ([group(num_seeds=1), group(num_seeds=5)], "1-5 seeds", BOOTSTRAP),
        (
            [group(num_seeds=3), group(num_seeds=5)],
            "3-5 seeds",
            f"{BOOTSTRAP}; for 2 or 3 seeds, {RANGE.format('75%')}",
        ),
        ([group(num_seeds=1, tasks=4)], "1 seed of 4 tasks", None),
        ([group(num_seeds=3, tasks=4)], "3 seeds of 4 tasks", BOOTSTRAP),
    ],
)
def test_the_legend_says_once_how_many_seeds_there_are_and_what_the_band_is(groups, seeds, band):
    panels = [plotting.Panel("CartPole-v1", [group]) for group in groups]
    expected = [f"PPO: {seeds}"] + ([f"Band: {band}"] if band else [])
    assert legend_of(figure.draw(panels, y_label="Return")) == expected
    caption = plotting.make_caption(panels, "Return")
    assert "range" not in caption and "interval" not in caption
    assert ("Bootstrap: stratified, percentile, 2000 resamples." in caption) == (BOOTSTRAP in (band or ""))


def test_the_caption_says_what_is_drawn_and_nothing_else():
    one, many = group(num_seeds=1), group(num_seeds=8)
    lines = "Return; lines: interquartile mean over seeds (mean for fewer than four runs)."
    panel = plotting.Panel("A", [one])
    assert plotting.make_caption([panel], "Return", "Learner steps") == lines
    frames = "Frames: the environment's own steps, decisions times action repeat."
    assert plotting.make_caption([panel], "Return") == f"{lines} {frames}"
    assert "single runs" not in plotting.make_caption([plotting.Panel("A", [many])], "Return")
    assert "single runs" in plotting.make_caption([plotting.Panel("A", [group(num_seeds=2)])], "Return")
    several = [plotting.Panel("A", [group(tasks=2)], [published(1, 2)])]
    assert "over seeds and tasks" in plotting.make_caption(several, "Return")
    assert "Published lines: interquartile mean over tasks" in plotting.make_caption(several, "Return")


@pytest.mark.parametrize(
    ("points", "is_seen"),
    [
        ([(0, 100), (50_000, 200), (100_000, 300)], True),
        ([(20_000, 900), (60_000, 950)], False),  # above the axes, which end at 500
        ([(20_000, 900), (60_000, -900)], True),  # no point is inside, but the line between them is
        ([(500_000, 100), (600_000, 100)], False),  # behind their end
        ([(90_000, 400), (500_000, 400)], True),
        ([(0, 1500), (10_000, 600), (100_000, 499)], True),
        ([(50_000, 300)], True),
    ],
)
def test_what_was_published_is_in_the_legend_only_where_it_is_seen(points, is_seen):
    curve = plotting.Curve(*np.array(points, float).T)
    limited = plotting.Panel("A", [group()], [("MPO, published", curve)], limits=(0.0, 500.0))
    drawn = figure.draw([limited, plotting.Panel("B", [group()])], y_label="Return")
    assert ("MPO, published" in legend_of(drawn)) == is_seen
    assert len(drawn.axes[0].lines) == len(drawn.axes[1].lines) + is_seen


def test_random_actions_outside_of_the_axes_are_not_in_the_legend():
    panel = plotting.Panel("A", [group()], random=-40.0, limits=(0.0, 500.0))
    assert "Random actions" not in legend_of(figure.draw([panel], y_label="Return"))


def test_one_seed_has_a_line_and_no_band():
    drawn = figure.draw([plotting.Panel("CartPole-v1", [group(num_seeds=1)])], y_label="Return")
    assert not drawn.axes[0].collections and len(drawn.axes[0].lines) == 1


def test_few_seeds_are_drawn_one_by_one_and_many_are_not():
    for num_seeds, lines in ((3, 4), (8, 1)):
        drawn = figure.draw([plotting.Panel("CartPole-v1", [group(num_seeds=num_seeds)])], y_label="Return")
        assert len(drawn.axes[0].collections) == 1 and len(drawn.axes[0].lines) == lines


def test_a_label_has_one_colour_in_all_panels_and_no_two_labels_share_one():
    both = [group("PPO", 8), group("V-MPO", 8)]
    panels = [plotting.Panel("A", both), plotting.Panel("B", both[::-1])]
    drawn = figure.draw(panels, y_label="Return")
    first, second = ([line.get_color() for line in ax.lines] for ax in drawn.axes)
    assert first == second[::-1] and len(set(first)) == 2


def test_more_labels_than_colours_have_lines_of_other_styles_as_the_legend_shows():
    assert len(set(figure.LINES)) == len(figure.LINES) == 5 * len(figure.COLOURS)
    labels = [f"agent {index}" for index in range(2 * len(figure.COLOURS))]
    panel = plotting.Panel("A", [group(label, num_seeds=1 + index % 2) for index, label in enumerate(labels)])
    drawn = figure.draw([panel, panel], y_label="Return", labels=labels[::-1])
    styles = [(line.get_color(), line.get_linestyle()) for line in legend_lines(drawn)]
    assert len(set(styles)) == len(labels)
    thick = [line for line in drawn.axes[0].lines if line.get_linewidth() > 1.0]  # without single runs
    assert [(line.get_color(), line.get_linestyle()) for line in thick] == styles[::-1]
    few = figure.draw([panel._replace(groups=panel.groups[: len(figure.COLOURS)])], y_label="Return")
    assert {line.get_linestyle() for line in few.axes[0].lines} == {"-"}


def test_more_profiles_and_points_than_colours_are_told_apart():
    labels = [f"agent {index}" for index in range(2 * len(figure.COLOURS))]
    generator = np.random.default_rng(0)
    profiles = {
        label: plotting.performance_profile(
            generator.uniform(size=(2, 3)), np.linspace(0, 1, 5), generator=generator
        )
        for label in labels
    }
    lines = legend_lines(report_figures.draw_profiles(profiles))
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == len(labels)
    points = [front.Point(label, *generator.uniform(size=2), 1, False) for label in labels]
    shown = plotting.Front("A", "x", "y", points, (0.0, 0.0), 1.0)
    lines = legend_lines(report_figures.draw_front(shown))
    assert len({(line.get_color(), line.get_marker()) for line in lines}) == len(labels)


def test_the_colours_differ_in_lightness_for_those_who_see_no_hue():
    luminance = [
        float(np.dot(matplotlib.colors.to_rgb(colour), [0.2126, 0.7152, 0.0722]))
        for colour in figure.COLOURS[:2]
    ]
    assert abs(luminance[0] - luminance[1]) > 0.03


def test_published_curves_have_different_lines_even_if_there_are_more_than_dashes():
    curve = published(1, 2)[1]
    names = [f"{name}, published" for name in "ABCDEFG"]
    panel = plotting.Panel("A", [group()], [(name, curve) for name in names])
    drawn = figure.draw([panel, panel], y_label="Return")

    def looks(lines):
        return [(line.get_color(), line._unscaled_dash_pattern) for line in lines]

    shown = {line.get_label(): line for line in drawn.legends[0].get_lines()}
    listed = looks(shown[name] for name in names)
    assert len(set(listed)) == len(names)
    assert looks(drawn.axes[0].get_lines()[: len(names)]) == listed


def test_the_axis_ends_with_the_runs_and_not_with_what_was_published():
    panel = plotting.Panel("Walker walk", [group()], [published(20_000, 40_000, 60_000, 4_000_000)])
    (ax,) = figure.draw([panel], y_label="Return").axes
    assert ax.get_xlim() == (0.0, 100_000.0)


def test_axes_end_together_unless_that_leaves_a_panel_more_than_half_empty():
    for lasts, ends in (
        ((100, 50, 80), (100, 100, 100)),
        ((100, 49, 80), (100, 49, 100)),
        ((20, 20), (20, 20)),
    ):
        panels = [plotting.Panel(f"Task {last}", [group(steps=(0, last // 2, last))]) for last in lasts]
        axes = figure.draw(panels, y_label="Return").axes
        assert [ax.get_xlim() for ax in axes] == [(0.0, end) for end in ends]


def test_a_published_curve_is_in_the_legend_if_only_the_longer_axis_shows_it():
    short, long = (plotting.Panel(name, [group(steps=(0, last))]) for name, last in (("A", 50), ("B", 100)))
    curve = plotting.Curve(np.array([70.0, 90.0]), np.array([100.0, 200.0]))
    one = short._replace(published=[("MPO, published", curve)], limits=(0.0, 1000.0))
    assert "MPO, published" in legend_of(figure.draw([one, long], y_label="Return"))


def test_the_axis_goes_on_to_three_published_points_but_no_further_than_twice_as_far():
    near, far = published(100_000, 150_000, 190_000, 500_000), published(300_000, 400_000, 500_000)
    coarse = published(100_000, 200_000, 300_000)
    for curves, end in (
        ([near], 190_000.0),
        ([far], 100_000.0),
        ([coarse], 200_000.0),
        ([near, coarse], 200_000.0),  # twice as far as the runs, and not as what one of the curves needs
    ):
        (ax,) = figure.draw([plotting.Panel("Walker walk", [group()], curves)], y_label="Return").axes
        assert ax.get_xlim() == (0.0, end)


def test_single_points_are_marked():
    one, many = curve([3.0], [50_000.0]), curve(range(20), np.arange(20.0) * 10_000)
    made = plotting.make_group("PPO", [[one], [many]], np.random.default_rng(0))
    drawn = figure.draw([plotting.Panel("A", [made], [("MPO, published", one)])], y_label="Return")
    marks = [(len(line.get_xdata()), line.get_marker()) for line in drawn.axes[0].lines]
    assert marks == [(1, "o"), (1, "o"), (20, "None"), (1, "o")]


def test_random_actions_are_a_dotted_line_with_its_words():
    drawn = figure.draw([plotting.Panel("Walker walk", [group()], random=40.0)], y_label="Return")
    (line,) = [line for line in drawn.axes[0].lines if line.get_linestyle() == ":"]
    assert list(line.get_ydata()) == [40.0, 40.0]
    assert "Random actions" in legend_of(drawn)


@pytest.mark.parametrize("num_panels", [1, 2, 3, 4, 5, 7, 14])
def test_every_environment_has_a_panel_and_every_column_its_axis_labels(num_panels):
    panels = [plotting.Panel(f"Environment {index}", [group()]) for index in range(num_panels)]
    drawn = figure.draw(panels, y_label="Return")
    axes = [ax for ax in drawn.axes if ax.get_visible()]
    assert [ax.get_title() for ax in axes] == [panel.title for panel in panels]
    columns = len({ax.get_subplotspec().colspan.start for ax in axes})
    assert sum(bool(ax.get_xlabel()) for ax in axes) == columns
    assert all(bool(ax.get_ylabel()) == (ax.get_subplotspec().colspan.start == 0) for ax in axes)


def test_nothing_is_written_over_anything_else():
    panels = [
        plotting.Panel(name, [group("PPO"), group("V-MPO", 2)], [published(20_000, 40_000, 60_000)], 40.0)
        for name in ("Walker walk", "Cartpole swingup sparse", "Hopper stand", "Finger spin")
    ]
    drawn = figure.draw(panels, y_label="Evaluation return")
    drawn.draw_without_rendering()
    legend = drawn.legends[0].get_window_extent()
    assert legend.x0 >= 0 and legend.x1 <= drawn.bbox.width and legend.y0 >= 0
    boxes = [ax.get_tightbbox() for ax in drawn.axes]
    assert not any(legend.overlaps(box) for box in boxes)
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def test_a_figure_is_written_as_png_and_svg_and_twice_the_same(tmp_path):
    for name in ("one", "two"):
        drawn = figure.draw([plotting.Panel("CartPole-v1", [group()])] * 2, y_label="Return")
        files = figure.save(drawn, tmp_path / "new" / name)
        assert [file.name for file in files] == [f"{name}.png", f"{name}.svg"]
    with Image.open(tmp_path / "new" / "one.png") as picture:
        assert picture.width == 1650  # 5.5 inches at 300 dots
    one, two = ((tmp_path / "new" / f"{name}.svg").read_text() for name in ("one", "two"))
    assert one == two and re.search(r"<svg", one)


def test_the_suffix_chooses_the_kind_of_file(tmp_path):
    drawn = figure.draw([plotting.Panel("CartPole-v1", [group()])], y_label="Return")
    assert figure.save(drawn, tmp_path / "curve.pdf") == [tmp_path / "curve.pdf"]
    assert (tmp_path / "curve.pdf").read_bytes().startswith(b"%PDF")
    with pytest.raises(ValueError, match=r"`path` of a figure must have .*.*png, .*svg.* got .*curve.jpgg"):
        figure.save(drawn, tmp_path / "curve.jpgg")
    (tmp_path / "taken.png").mkdir()
    with pytest.raises(OSError, match=r"taken.png cannot be written: Is a directory\. .* permissions there"):
        figure.save(drawn, tmp_path / "taken.png")


def test_letters_are_embedded_so_that_they_look_alike_everywhere(tmp_path):
    drawn = figure.draw([plotting.Panel("CartPole-v1", [group()])], y_label="Return")
    (pdf,), (svg,), (eps,) = (
        figure.save(drawn, tmp_path / f"curve.{kind}") for kind in ("pdf", "svg", "eps")
    )
    assert b"/FontFile2" in pdf.read_bytes() and b"/Type3" not in pdf.read_bytes()  # TrueType, no bitmaps
    assert "<text" not in svg.read_text() and "<path" in svg.read_text()
    assert "/FontType 42" in eps.read_text(encoding="latin-1")


def test_a_figure_of_nothing_is_refused():
    with pytest.raises(ValueError, match="`panels` must hold at least one panel, got none"):
        figure.draw([], y_label="Return")


@pytest.mark.parametrize(
    ("steps", "text"),
    [(0, "0"), (500, "500"), (1000, "1k"), (2500, "2.5k"), (200_000, "200k"), (1_500_000, "1.5M")],
)
def test_steps_are_written_with_their_unit(steps, text):
    panel = plotting.Panel("CartPole-v1", [group(steps=(0, max(steps, 1)))])
    (ax,) = figure.draw([panel], y_label="Return").axes
    assert ax.xaxis.get_major_formatter()(steps) == text


def test_a_long_legend_widens_the_figure():
    label = "MPO, critic target retrace, policy layer sizes 256-256-256, " * 2
    panels = [plotting.Panel("CartPole-v1", [group(label, num_seeds=3)])] * 2
    drawn = figure.draw(panels, y_label="Return")
    legend = drawn.legends[0].get_window_extent()
    assert legend.width > figure._INCHES[2][0] * drawn.dpi  # or nothing would be shown by this
    assert legend.width < drawn.get_figwidth() * drawn.dpi


def named_group(label, *values):
    steps = np.arange(len(values), dtype=float)
    return plotting.make_group(
        label, [[plotting.Curve(steps, np.array(values, float))]], np.random.default_rng(0)
    )


def test_the_curves_of_one_panel_have_their_names_at_their_ends_without_overlap():
    ends = {"low": 1.0, "high": 9.0, "nearly as high": 8.99, "as high": 9.0}
    groups = [named_group(label, 0.0, end) for label, end in ends.items()]
    panel = plotting.Panel("A", groups, [("MPO, published", plotting.Curve(np.arange(9.0), np.arange(9.0)))])
    drawn = figure.draw([panel], y_label="Return")
    drawn.draw_without_rendering()
    (ax,) = drawn.axes
    colours = {text.get_text(): text.get_color() for text in ax.texts}
    assert [*colours] == [
        "low: 1 seed",
        "MPO, published",
        "nearly as high: 1 seed",
        "high: 1 seed",
        "as high: 1 seed",
    ]
    for line in ax.lines[1:]:
        (name,) = [name for name in ends if line.get_ydata()[-1] == ends[name]][:1]
        assert line.get_color() in {colours[f"{each}: 1 seed"] for each in ends if ends[each] == ends[name]}
    assert colours["MPO, published"] == ax.lines[0].get_color()
    boxes = [Text.get_window_extent(text) for text in ax.texts]
    assert all(lower.y1 <= upper.y0 + 1.0 for lower, upper in itertools.pairwise(boxes))
    assert all(box.x0 > ax.bbox.x1 and box.x1 < drawn.bbox.x1 for box in boxes)
    assert all(ax.bbox.y0 - 10.0 < box.y0 and box.y1 < drawn.bbox.y1 for box in boxes)


def test_more_names_than_fit_beside_a_panel_are_in_the_legend():
    panel = plotting.Panel("A", [named_group(f"agent {index}", 0.0, index) for index in range(17)])
    drawn = figure.draw([panel], y_label="Return")
    assert not drawn.axes[0].texts and len(drawn.legends[0].get_texts()) == 17


def curve(values, steps=(0.0, 50_000.0, 100_000.0)):
    return plotting.Curve(np.array(steps), np.array(values, float))


def test_curves_are_drawn_a_line_for_each_label_and_a_band_over_several():
    drawn = plotting.draw_curves(
        {"PPO": curve([1, 2, 3]), "MPO": [curve([1, 5, 9]), curve([3, 7, 11])]},
        title="Cart",
        y_label="Return",
        x_label="Decisions",
        random=2.0,
        limits=(0.0, 20.0),
    )
    (ax,) = drawn.axes
    assert (ax.get_title(), ax.get_ylabel(), ax.get_xlabel()) == ("Cart", "Return", "Decisions")
    assert ax.get_ylim() == (0.0, 20.0)
    lines = [[*line.get_ydata()] for line in ax.lines]
    assert [1, 2, 3] in lines and [2, 6, 10] in lines and [2.0, 2.0] in lines
    assert legend_of(drawn)[:3] == ["MPO: 2 seeds", "PPO: 1 seed", "Random actions"]


def test_curves_have_their_usual_labels_without_being_told():
    (ax,) = plotting.draw_curves({"PPO": curve([1, 2, 3])}).axes
    assert (ax.get_title(), ax.get_ylabel(), ax.get_xlabel()) == (
        "",
        "Evaluation return",
        "Environment steps",
    )
    assert ax.get_ylim() == (0.0, 3.1)


def test_no_curve_is_refused():
    with pytest.raises(ValueError, match="`by_label` must hold at least one curve, got none"):
        plotting.draw_curves({})


def test_drawing_leaves_pyplot_and_its_settings_alone():
    code = """
import sys
import matplotlib
before = matplotlib.rcParams.copy()  # a plain `dict` would look for a backend
import numpy as np
from minerva_acme import plotting
plotting.draw_curves({"a": plotting.Curve(np.array([0.0, 1.0]), np.array([0.0, 1.0]))})._repr_png_()
assert matplotlib.rcParams.copy() == before
assert "matplotlib.pyplot" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_notebook_shows_a_figure_as_a_picture_in_its_own_style():
    drawn = plotting.draw_curves({"PPO": curve([1, 2, 3])})
    with Image.open(io.BytesIO(drawn._repr_png_())) as image:
        assert image.format == "PNG" and 300 < image.width < 700
    (ax,) = drawn.axes
    # Also those that matplotlib makes only when it draws.
    assert {label.get_fontsize() for label in ax.get_xticklabels() + ax.get_yticklabels()} == {7.0}


def test_without_matplotlib_drawing_says_how_to_install_it():
    code = """
import sys
sys.modules["matplotlib"] = None
from minerva_acme import plotting
assert "draw_curves" in dir(plotting)
plotting.draw_curves
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (
        "Figures need 'matplotlib', which is not installed: pip install 'minerva-acme[plot]'" in done.stderr
    )
