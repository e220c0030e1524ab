"""One flat vector instead of a nest of observations."""

from collections.abc import Mapping, Sequence
from typing import Any

import dm_env
import numpy as np
import tree

from minerva_acme import specs, types
from minerva_acme.wrappers import base


class ConcatObservationWrapper(base.EnvironmentWrapper):
    """Flattens and concatenates a nest of float observations into one vector.

    The order is that of the nest: dicts by sorted key, at every level, whatever order the
    environment lists them in; tuples and lists by position; each array row by row. A scalar counts
    as one element. The dtype is the widest among the leaves.
    """

    def __init__(self, environment: dm_env.Environment, *, name_filter: Sequence[str] | None = None) -> None:
        """Initialises the wrapper.

        Args:
            environment: what to wrap; the leaves it uses are float arrays of at most two axes.
            name_filter: the entries of a dict of observations to keep, or None for all of it. It
                selects; the order stays sorted.

        Raises:
            ValueError: an entry of the filter does not exist, or a leaf is not a float or looks
                like an image.
        """
        super().__init__(environment)
        spec = environment.observation_spec()
        if name_filter is not None:
            _check_filter(name_filter, spec)
        self._names = None if name_filter is None else tuple(name_filter)
        selected = self._select(spec)
        # What `tree` would give of the usual observation, in a fifth of the time.
        is_flat = isinstance(selected, Mapping) and not any(map(tree.is_nested, selected.values()))
        self._sorted_names = sorted(selected) if is_flat else None
        tree.map_structure_with_path(_check_flattable, selected)
        leaves = tree.flatten(selected)
        if not leaves:
            raise ValueError("`observation_spec` must have at least one array to concatenate, got none.")
        self._dtype = np.result_type(*(leaf.dtype for leaf in leaves))
        size = sum(int(np.prod(leaf.shape)) for leaf in leaves)
        self._observation_spec = specs.Array(shape=(size,), dtype=self._dtype, name="observation")

    def observation_spec(self) -> types.NestedSpec:
        return self._observation_spec

    def _select(self, nest: Any) -> Any:
        return nest if self._names is None else {name: nest[name] for name in self._names}

    def _convert(self, timestep: dm_env.TimeStep) -> dm_env.TimeStep:
        observation = timestep.observation
        if self._sorted_names is None:
            leaves = tree.flatten(self._select(observation))
        else:
            leaves = [observation[name] for name in self._sorted_names]
        flat = [leaf if getattr(leaf, "ndim", 0) == 1 else np.ravel(leaf) for leaf in leaves]
        vector = np.concatenate(flat, dtype=self._dtype)
        return dm_env.TimeStep(timestep.step_type, timestep.reward, timestep.discount, vector)


def _check_filter(name_filter: Sequence[str], spec: types.NestedSpec) -> None:
    if isinstance(name_filter, str):
        raise ValueError(
            f"`name_filter` must be a list of names, got '{name_filter}': write ['{name_filter}']."
        )
    if not isinstance(spec, Mapping):
        raise ValueError(
            "`name_filter` must be None unless observations are a dict, got a filter for "
            f"{specs.describe(spec)}."
        )
    unknown = [name for name in name_filter if name not in spec]
    if unknown:
        raise ValueError(f"`name_filter` must name observations among {sorted(spec)}, got {unknown}.")


def _check_flattable(path: tuple[Any, ...], spec: specs.Array) -> None:
    if not np.issubdtype(spec.dtype, np.floating):
        rule, found = "be a float array", specs.describe(spec)
    elif len(spec.shape) > 2:
        rule, found = "have at most two axes", f"{specs.describe(spec)}, which looks like an image"
    else:
        return
    raise ValueError(
        f"{specs.leaf_name('`observation_spec`', path)} must {rule} to be concatenated, got {found}. Turn it "
        "into a vector of floats in a wrapper of the environment, or leave it out there."
    )
