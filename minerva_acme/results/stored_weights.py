"""The weights that are installed with the library, from some of the runs in its rows, as safetensors.

Each file is `weights/<exp_name>__<environment>.safetensors`, with `__` for the environment's slashes, and its
name is <exp_name>:<environment>, such as ppo_default:CartPole-v1.
"""

import functools
import pathlib
from collections.abc import Mapping
from types import MappingProxyType

_FOLDER = pathlib.Path(__file__).parent / "weights"


@functools.cache
def list_weights() -> Mapping[str, pathlib.Path]:
    """Returns the files by name, sorted."""
    found = {}
    for path in sorted(_FOLDER.glob("*.safetensors"), key=lambda path: path.name.lower()):
        exp_name, *environment = path.stem.split("__")
        found[f"{exp_name}:{'/'.join(environment)}"] = path
    return MappingProxyType(found)
