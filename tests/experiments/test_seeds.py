import itertools
import random

import numpy as np
import pytest
import torch

from minerva_acme.experiments import seeds


def test_a_part_gets_the_same_seed_whatever_other_parts_there_are():
    first, second = seeds.Seeds(3), seeds.Seeds(3)
    second.number("policy")
    second.generator("networks")
    assert first.number("environment", 1) == second.number("environment", 1)
    draws = [torch.rand(3, generator=each.generator("policy")) for each in (first, second)]
    assert torch.equal(*draws)


def test_parts_of_other_names_and_indices_and_runs_get_other_seeds():
    of_run = seeds.Seeds(3)
    found = [of_run.number("policy"), of_run.number("film"), seeds.Seeds(4).number("policy")]
    found += [of_run.number("environment", index) for index in range(3)]
    assert len(set(found)) == 6


def draw():
    return torch.rand(()).item(), np.random.uniform(), random.random()


@pytest.mark.parametrize("ends", list(itertools.permutations(range(3))))
def test_runs_that_overlap_leave_each_other_and_the_process_its_generators(ends):
    # As threads do: one that was left behind ends within a later run.
    generators = seeds.GlobalGenerators("cpu")
    with generators.seeded(seeds.Seeds(5)):
        expected = draw()
    before = generators.save()
    outside = draw()
    generators.restore(before)
    contexts = [generators.seeded(seeds.Seeds(number)) for number in (3, 4, 5)]
    for context in contexts:
        context.__enter__()
    for number in ends[: ends.index(2)]:
        contexts[number].__exit__(None, None, None)
    assert draw() == expected
    for number in ends[ends.index(2) :]:
        contexts[number].__exit__(None, None, None)
    assert draw() == outside
