import dm_env
import numpy as np
import pytest

from minerva_acme import specs, testing, wrappers

NUMBER = specs.Array((2,), np.float32)
WORDS = specs.StringArray(())


class Speaking(testing.FakeEnvironment):
    def __init__(self, spec, observation):
        super().__init__(observation_spec=spec)
        self.observation = observation

    def reset(self):
        return dm_env.restart(self.observation)


def test_text_and_what_is_empty_is_left_out_wherever_it_is_and_the_rest_stays():
    value = np.float32([1, 2])
    none = specs.Array((0,), np.float32)
    spec = {"task": WORDS, "arm": (NUMBER, WORDS), "notes": {"all": WORDS}, "x": NUMBER, "none": none}
    hello = np.array("hello", object)
    observation = {"task": hello, "arm": (value, hello), "notes": {"all": hello}, "x": value}
    observation["none"] = np.zeros(0, np.float32)
    wrapped = wrappers.NumbersOnlyWrapper(Speaking(spec, observation))
    assert wrapped.observation_spec() == {"arm": (NUMBER,), "x": NUMBER}
    given = wrapped.reset().observation
    assert given == {"arm": (value,), "x": value}
    assert given["x"] is value


@pytest.mark.parametrize(
    "spec", [WORDS, specs.Array((2, 0), np.float32), {"task": WORDS}, ({"task": WORDS}, ())], ids=str
)
def test_an_observation_without_a_number_is_refused(spec):
    with pytest.raises(ValueError, match=r"must have a part that holds numbers.*ObservationTransformWrapper"):
        wrappers.NumbersOnlyWrapper(Speaking(spec, None))
