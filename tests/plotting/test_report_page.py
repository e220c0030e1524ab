import base64
import html.parser
import re

import numpy as np
import pytest

from minerva_acme import plotting
from minerva_acme.plotting import figure, report_figures, report_page
from minerva_acme.plotting.report import Bar

VOID = ("meta", "img", "br")


class Reader(html.parser.HTMLParser):
    """Collects the texts of a page, what it loads, and whether its tags are closed in order."""

    def __init__(self):
        super().__init__()
        self.open, self.texts, self.loads = [], [], []

    def handle_starttag(self, tag, attributes):
        self.loads += [value for name, value in attributes if name in ("src", "srcset") or tag == "link"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.texts.append(data.strip())


def test_a_page_holds_everything_and_shows_text_as_it_is():
    picture = report_page.Picture("A <b>", 'caption "&"', "<svg>drawn</svg>", {"PDF": 'a"b.pdf'})
    table = plotting.Table("T", "a note", ["", "x"], [["<script>", "x" * 50]])
    section = report_page.Section("A part <i>", [picture], ["read & know"], table)
    page = report_page.make_page("5 < 6", [section])
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    for text in ("5 < 6", "read & know", "A part <i>", 'caption "&" (', "a note", "<script>", "x" * 50):
        assert text in reader.texts
    (source,) = reader.loads
    kind, data = source.split(",", 1)
    assert kind == "data:image/svg+xml;base64" and base64.b64decode(data) == b"<svg>drawn</svg>"
    assert not re.search(r"https?://", page)
    assert f"<dt>&lt;script&gt;</dt><dd><i>x:</i> {'x' * 50}</dd>" in page  # too wide for the table
    narrow = section._replace(table=table._replace(rows=[["", "y"]]))
    assert "<th></th></tr>" in page and "<dl>" not in report_page.make_page("", [narrow])
    assert 'alt="A &lt;b&gt;"' in page


def test_a_figure_is_larger_than_on_paper_and_scrolls_before_it_is_smaller(profiles, tmp_path):
    drawn = report_figures.draw_profiles(profiles)
    (file,) = figure.save(drawn, tmp_path / "profiles.svg")
    picture = report_page.Picture("Profiles", "", file.read_text(), {})
    page = report_page.make_page("", [report_page.Section("Profiles", [picture])])
    on_paper = 96 * drawn.get_figwidth()  # pixels
    width, least = map(float, re.search(r"width: (\d+)px; min-width: (\d+)px", page).groups())
    assert width == pytest.approx(1.4 * on_paper, abs=1) and least == pytest.approx(on_paper, abs=1)
    assert '<figure><div class="wide"><img' in page


@pytest.fixture
def profiles():
    generator = np.random.default_rng(0)
    scores = generator.uniform(size=(2, 3, 4))
    return {
        name: plotting.performance_profile(one, np.linspace(0, 1, 11), generator=generator)
        for name, one in zip(("ours", "theirs"), scores, strict=True)
    }


def test_profiles_have_a_line_a_band_and_a_name_each(profiles):
    drawn = report_figures.draw_profiles(profiles)
    (ax,) = drawn.axes
    assert [line.get_label() for line in ax.lines] == ["ours", "theirs"]
    assert len(ax.collections) == 2
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), profiles["ours"].shares)
    assert [text.get_text() for text in drawn.legends[0].get_texts()] == ["ours", "theirs"]


def test_bars_are_below_each_other_with_their_names_and_the_axis_shows_all_of_them():
    bars = [Bar("ours", 0.5, (0.4, 1.2)), Bar("theirs", -0.2, None)]
    drawn = report_figures.draw_bars(bars, x_label="Score", limits=(0.0, 1.0), middle=None)
    (ax,) = drawn.axes
    assert [text.get_text() for text in ax.get_yticklabels()] == ["ours", "theirs"]
    assert ax.get_xlim() == (-0.2, 1.2) and ax.yaxis_inverted()
    assert len(ax.lines) == 4
    drawn = report_figures.draw_bars(bars, x_label="Probability", limits=(0.0, 1.0), middle=0.5)
    assert [line.get_xdata()[0] for line in drawn.axes[0].lines if line.get_linestyle() == ":"] == [0.5]


def test_an_experiment_has_one_colour_in_all_pictures(profiles):
    curve = plotting.Curve(np.array([0.0, 1.0]), np.array([1.0, 2.0]))
    group = plotting.make_group("theirs", [[curve]], np.random.default_rng(0))
    drawn = figure.draw([plotting.Panel("A", [group])], y_label="Return", labels=list(profiles))
    line = report_figures.draw_profiles(profiles).axes[0].lines[1]
    assert drawn.axes[0].lines[0].get_color() == line.get_color()
    assert [text.get_text() for text in drawn.axes[0].texts] == ["theirs: 1 seed"]


def test_the_pdf_holds_its_fonts_and_is_written_twice_the_same(profiles, tmp_path):
    written = []
    for name in ("one", "two"):
        (path,) = figure.save(report_figures.draw_profiles(profiles), tmp_path / f"{name}.pdf")
        written.append(path.read_bytes())
    assert b"/FontFile2" in written[0] and b"/Type3" not in written[0]
    assert written[0] == written[1]


def test_a_long_name_is_broken_between_its_settings_and_nowhere_else():
    assert report_figures.in_lines("mpo_control+critic_target=one_step") == [
        "mpo_control+",
        "critic_target=one_step",
    ]
    assert report_figures.in_lines("ppo+gae_lambda=0.9") == ["ppo+gae_lambda=0.9"]
    assert report_figures.in_lines("x" * 50) == ["x" * 50]


def test_markdown_has_the_texts_and_tables_of_the_sections():
    table = plotting.Table("T", "a note", ["", "x|y"], [["one", "1"], ["two", "2"]])
    picture = report_page.Picture("A", "caption", "<svg>drawn</svg>", {})
    sections = [
        report_page.Section("Curves", [picture]),
        report_page.Section("Notes", texts=["first", "second"]),
        report_page.Section("Scores", [picture], table=table),
    ]
    expected = """# ours

## Notes

first

second

## Scores

|  | x\\|y |
| --- | --- |
| one | 1 |
| two | 2 |

a note
"""
    assert report_page.make_markdown("ours", sections) == expected
