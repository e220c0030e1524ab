import concurrent.futures

import numpy as np
import pytest

from minerva_acme import counting, testing


def make_tree():
    root = counting.Counter()
    return root, counting.Counter(root, "actor"), counting.Counter(root, "learner")


def test_children_count_under_their_prefix_and_see_everything():
    root, actor, learner = make_tree()
    assert actor.increment(steps=2, episodes=1) == {"actor_steps": 2, "actor_episodes": 1}
    expected = {"actor_steps": 2, "actor_episodes": 1, "learner_steps": 1, "walltime": 0.5}
    learner.increment(steps=1)
    assert root.increment(walltime=0.5) == expected
    assert actor.get_counts() == learner.get_counts() == root.get_counts() == expected
    assert actor.get_count("learner_steps") == root.get_count("learner_steps") == 1
    assert actor.get_count("steps") == 0


def test_prefixes_of_a_deep_tree_are_joined_from_the_root():
    root, actor, _ = make_tree()
    second = counting.Counter(actor, "2")
    second.increment(steps=3)
    assert root.get_counts() == {"actor_2_steps": 3}
    assert second.get_steps_key() == "actor_2_steps"
    assert root.get_steps_key() == "steps"


def test_counts_handed_out_are_copies():
    root, *_ = make_tree()
    root.increment(steps=1)["steps"] = 100
    root.get_counts()["steps"] = 100
    root.save()["steps"] = 100
    assert root.get_counts() == {"steps": 1}


def test_no_increment_of_several_threads_is_lost():
    root, *children = make_tree()

    def count(child):
        for _ in range(2000):
            child.increment(steps=1)

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(count, children * 2))
    assert root.get_counts() == {"actor_steps": 4000, "learner_steps": 4000}


def test_restoring_root_and_children_counts_nothing_twice():
    saved, restored = make_tree(), make_tree()
    saved[1].increment(steps=3)
    restored[1].increment(steps=100, mistakes=1)
    for old, new in zip(saved, restored, strict=True):
        new.restore(testing.through_a_file(old.save()))
    assert saved[1].save() == {}
    assert restored[0].get_counts() == restored[1].get_counts() == {"actor_steps": 3}
    assert restored[1].increment(steps=1) == {"actor_steps": 4}


def test_the_order_of_restoring_does_not_matter():
    saved, restored = make_tree(), make_tree()
    saved[1].increment(steps=3)
    states = [counter.save() for counter in saved]
    for counter, state in list(zip(restored, states, strict=True))[::-1]:
        counter.restore(state)
    assert restored[0].get_counts() == {"actor_steps": 3}


def test_a_state_holds_python_numbers_alone():
    counter = counting.Counter()
    counter.increment(steps=np.int64(3), seconds=np.float32(0.5))
    assert [type(value) for value in counter.save().values()] == [int, float]
    assert testing.through_a_file(counter.save()) == {"steps": 3, "seconds": 0.5}


def test_something_that_is_no_number_is_refused_and_nothing_is_counted():
    counter = counting.Counter()
    with pytest.raises(ValueError, match="Count `walltime` must be a number, got 'long' of type str"):
        counter.increment(steps=1, walltime="long")
    assert counter.get_counts() == {}


def test_a_tick_is_an_increment_by_one():
    root = counting.Counter()
    actor = counting.Counter(counting.Counter(root, "left"), "actor")
    actor.tick("steps")
    actor.increment(steps=2)
    root.restore({"left_actor_steps": 10})
    actor.tick("steps")
    actor.tick("episodes")
    assert root.get_counts() == {"left_actor_steps": 11, "left_actor_episodes": 1}


def test_ticks_of_several_threads_are_all_counted():
    root = counting.Counter()
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        tasks = [pool.submit(lambda: [root.tick("steps") for _ in range(2_000)]) for _ in range(4)]
        assert all(len(task.result()) == 2_000 for task in tasks)
    assert root.get_counts() == {"steps": 8_000}


def test_what_a_block_has_counted_is_not_counted_again():
    root = counting.Counter()
    learner = counting.Counter(root, "learner")
    with root.at_least_once("learner_steps"):
        pass
    assert root.get_counts() == {"learner_steps": 1}
    with root.at_least_once("learner_steps"):
        learner.increment(steps=2)
    with learner.at_least_once("steps"):
        learner.tick("steps")
    assert root.get_counts() == {"learner_steps": 4}
    with pytest.raises(StopIteration), root.at_least_once("learner_steps"):
        next(iter(()))
    assert root.get_counts() == {"learner_steps": 4}
