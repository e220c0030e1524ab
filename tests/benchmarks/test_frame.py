"""Variants take turns, and are compared as documented."""

import itertools
import json
import pathlib
import statistics

import pytest

from . import frame, recorded, registry, scaling


def make_benchmark(**overrides):
    settings = {"name": "tape", "unit": "call", "make": None, "reference": "a", **overrides}
    return frame.Benchmark(**settings)


def test_variants_take_turns_in_an_order_that_reverses_every_round() -> None:
    tape: list[str] = []
    variants = {name: (lambda name=name: tape.append(name)) for name in "abc"}
    blocks = frame.measure(make_benchmark(calls_per_block=2), variants, seconds=0.0)
    rounds = ["".join(tape[i : i + 6]) for i in range(0, len(tape), 6)]
    assert rounds == ["aabbcc", *itertools.islice(itertools.cycle(["aabbcc", "ccbbaa"]), 5)]
    assert all(len(blocks[name]) == 5 for name in "abc")


def test_cost_is_that_of_a_unit_of_work() -> None:
    clock = itertools.count(step=12.0)
    benchmark = make_benchmark(calls_per_block=2, units_per_call=3, cpu_clock=lambda: next(clock))
    blocks = frame.measure(benchmark, {"a": lambda: None}, seconds=0.0)
    assert {block.cpu for block in blocks["a"]} == {2.0}


def test_ratios_are_how_many_times_faster_than_the_reference() -> None:
    walls = {"a": [4.0, 6.0, 8.0, 6.0, 6.0], "b": [2.0, 2.0, 4.0, 1.0, 3.0]}
    blocks = {name: [frame.Block(wall, wall / 2) for wall in values] for name, values in walls.items()}
    summaries = frame.summarise(blocks, "a")
    assert summaries["b"].wall_median == statistics.median(walls["b"]) == 2.0
    assert summaries["b"].wall_ratio == summaries["b"].cpu_ratio == 3.0
    assert summaries["b"].p10_ratio == summaries["b"].cpu_p10_ratio == 4.0
    assert summaries["b"].paired_ratio == 2.0
    assert summaries["a"].wall_ratio == 1.0
    assert summaries["b"].rounds == 5


def run_of(**ratios: float):
    variants = {
        name: {"wall_ratio": ratio, "cpu_ratio": ratio, "paired_ratio": 0.0} for name, ratio in ratios.items()
    }
    return {"machine": {"cpu": "Z80", "date": "today"}, "results": {"loop/1": {"variants": variants}}}


def test_a_ratio_below_the_band_is_told_and_one_within_is_not(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "recorded.json"
    recorded.update(run_of(plain=1.0, ours=3.0), path)

    def lines(**ratios: float) -> list[str]:
        return recorded.compare("loop/1", run_of(**ratios)["results"]["loop/1"], path)

    assert lines(plain=1.0, ours=3.0 * (1.0 - recorded.BAND) + 0.01) == []
    assert lines(plain=1.0, ours=9.0) == []
    below = lines(plain=1.0, ours=3.0 * (1.0 - recorded.BAND) - 0.01)
    assert [line.split(",")[0] for line in below] == [
        "loop/1 ours: cpu_ratio 2.09",
    ]
    assert lines(plain=1.0) == ["loop/1 ours: recorded, but not measured now"]
    assert recorded.compare("loop/1", {"failed": "exit status 1"}, path) == ["loop/1: failed, exit status 1"]
    assert recorded.compare("loop/1", {"skipped": "no GPU"}, path) == []
    assert recorded.compare("other/1", run_of(ours=1.0)["results"]["loop/1"], path) == []


def test_recording_leaves_what_was_not_measured(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "recorded.json"
    recorded.update(run_of(ours=3.0), path)
    other = run_of(ours=2.0)
    other["results"] = {"other/2": other["results"]["loop/1"]}
    recorded.update(other, path)
    known = json.loads(path.read_text())
    assert known["loop/1"]["variants"]["ours"] == {"cpu_ratio": 3.0}
    assert known["other/2"]["cpu"] == "Z80"


@pytest.mark.parametrize("name", registry.names())
def test_every_benchmark_is_named_as_its_file_and_has_goals_of_its_own(name: str) -> None:
    (benchmark,) = registry.load([name])
    assert benchmark.name == name
    assert all(goal > 0.0 for goal in benchmark.goals.values())


def test_unknown_benchmarks_are_refused() -> None:
    with pytest.raises(SystemExit, match=r"There is no benchmark \['warp'\]; there are \[.*mpo_learner"):
        registry.load(["warp"])


def test_arithmetic_of_the_default_step_is_that_of_its_layers() -> None:
    from minerva_acme.agents import mpo

    critic, policy = 2 * (23 * 512 + 512 * 512 + 512 * 256 + 256), 2 * (17 * 256 + 2 * 256 * 256 + 256 * 12)
    rows = 256 * (4 + 8 * 5 + 20)
    expected = critic * (rows + 3 * 256) + policy * (6 + 3) * 256
    assert scaling.gigaflops(mpo.MPOConfig(), 17, 6) == pytest.approx(expected / 1e9)


def test_a_reference_that_waited_for_a_processor_is_told() -> None:
    blocks = {"a": [frame.Block(4.0, 1.0)] * 5, "b": [frame.Block(0.5, 1.0)] * 5}
    summaries = frame.summarise(blocks, "a")
    assert frame.is_busy(summaries["a"])
    assert not frame.is_busy(summaries["b"])
