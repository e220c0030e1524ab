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


def test_text_is_left_out_wherever_it_is_and_the_rest_stays():
    value = np.float32([1, 2])
    spec = {"task": WORDS, "arm": (NUMBER, WORDS), "notes": {"all": WORDS}, "x": NUMBER}
    hello = np.array("hello", object)
    observation = {"task": hello, "arm": (value, hello), "notes": {"all": hello}, "x": value}
    wrapped = wrappers.DropTextWrapper(Speaking(spec, observation))
    assert wrapped.observation_spec() == {"arm": (NUMBER,), "x": NUMBER}
    given = wrapped.reset().observation
    assert given == {"arm": (value,), "x": value}
    assert given["x"] is value


@pytest.mark.parametrize("spec", [WORDS, {"task": WORDS}, ({"task": WORDS}, ())], ids=str)
def test_an_observation_of_text_alone_is_refused(spec):
    with pytest.raises(ValueError, match=r"must have something besides text.*ObservationTransformWrapper"):
        wrappers.DropTextWrapper(Speaking(spec, None))
