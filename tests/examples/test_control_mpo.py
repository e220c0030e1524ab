import dataclasses
import importlib.util
import pathlib

from minerva_acme.agents import mpo

PATH = pathlib.Path(__file__).parents[2] / "examples" / "control_mpo.py"


def load_example():
    spec = importlib.util.spec_from_file_location("control_mpo", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_example_trains_for_a_few_hundred_steps(short_tasks):
    example = load_example()
    config = dataclasses.replace(
        mpo.PRESETS["control"],
        batch_size=16,
        samples_per_insert=1.0,
        min_replay_size=100,
        policy_layer_sizes=(16,),
        critic_layer_sizes=(16,),
    )
    result = example.main(
        example.Options(env="dm_control/cartpole/swingup/repeat=4", num_env_steps=250, config=config)
    )
    assert len(result.returns) == 5
    assert all(0.0 <= value <= 1000.0 for value in result.returns)
    assert result.lengths == (10,) * 5


def test_the_example_is_short_enough_to_read():
    assert len(PATH.read_text().splitlines()) <= 130
