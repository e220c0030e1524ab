"""Running normalisation of observations and rewards.

Shapes: O observation size; n rows of a batch.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import torch
import tree
from torch import nn

from minerva_acme import constraints, specs, types
from minerva_acme.networks import encoders

_INITIAL_COUNT = 1e-4  # the weight, in rows, of the initial variance 1
MIN_VARIANCE = 1e-8
CLIP = 10.0  # standard deviations


class RunningNorm(nn.Module):
    """Normalises by the mean and variance of all rows that `update` has received.

    `forward` never changes the statistics, not even in training mode. The code that collects data calls
    `update` once per rollout, so that the density under which actions were drawn and the density of the
    first epoch are computed from the same inputs. Mean, variance and count are buffers, so they are saved
    and fetched with the weights.

    The count is in double precision: a float32 count would stop growing at 16.8 million rows.
    """

    mean: torch.Tensor  # [O]
    var: torch.Tensor  # [O]
    count: torch.Tensor  # []  float64

    def __init__(self, size: int) -> None:
        super().__init__()
        if size < 1:
            raise ValueError(f"`size` must be >= 1, got {size}.")
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("var", torch.ones(size))
        self.register_buffer("count", torch.tensor(_INITIAL_COUNT, dtype=torch.float64))

    @torch.no_grad()
    def update(self, x: torch.Tensor) -> torch.Tensor:
        """Updates the statistics with rows; with w = n / (count + n) and delta = mean_x - mean,

            mean' = mean + w delta
            var'  = (1 - w) var + w var_x + w (1 - w) delta^2

        Source: Chan et al. 1979, the merging of two samples' moments; population variances. Deviations: the
        first rows set the mean, since their distance from its initial 0, of which nothing was seen, is no
        variance: a pressure of 101,325 would get a standard deviation of 64. And rows with an element that is
        not finite or beyond `constraints.LARGEST` are left out. After a single 1e19 all other values would be
        normalised to 0, and the square of 1e20 is infinite.

        Args:
            x: The rows, [..., O]; the leading axes are rows, at least one, of which n are not left out.

        Returns:
            The number of rows left out, []. It is not read on the host; the caller decides when to do that.

        Raises:
            ValueError: The rows have another size, or `x` holds no row.
        """
        size = self.mean.shape[0]
        if x.ndim < 1 or x.shape[-1] != size or x.numel() == 0:
            raise ValueError(f"`x` must have shape [..., {size}] and hold a row, got {list(x.shape)}.")
        rows = x.reshape(-1, size)
        is_taken = (rows.abs() <= constraints.LARGEST).all(dim=1, keepdim=True)
        n = is_taken.sum()
        rows_mean = rows.where(is_taken, 0.0).sum(dim=0) / n.clamp(min=1)
        rows_var = (rows - rows_mean).where(is_taken, 0.0).square().sum(dim=0) / n.clamp(min=1)
        mean = torch.where((self.count <= _INITIAL_COUNT) & (n > 0), rows_mean, self.mean)
        delta = rows_mean - mean
        total = self.count + n
        weight = n / total
        # In place: variables that are already handed out by reference stay the same tensors.
        self.mean.copy_(mean + delta * weight)
        self.var.copy_(
            self.var * (1.0 - weight) + rows_var * weight + delta.square() * (weight * (1.0 - weight))
        )
        self.count.copy_(total)
        return len(rows) - n

    def parts(self, name: str, x: torch.Tensor) -> "Iterator[tuple[str, RunningNorm, torch.Tensor]]":
        """Yields what to update with x [..., O]: a name, the statistics and their rows."""
        yield name, self, x

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Computes (x - mean) / sqrt(var + 1e-8), clipped to ±10: [..., O] -> [..., O]."""
        return ((x - self.mean) * torch.rsqrt(self.var + MIN_VARIANCE)).clamp(-CLIP, CLIP)

    def scale(self, x: torch.Tensor) -> torch.Tensor:
        """Computes x / sqrt(var + 1e-8), clipped to ±10: not shifted by the mean, rewards keep their sign.

        Args:
            x: The values, [..., O]; any shape where O is 1.

        Returns:
            The scaled values, with the shape of `x`.
        """
        inverse_std = torch.rsqrt(self.var + MIN_VARIANCE).squeeze(0)  # [O], or [] where O is 1
        return (x * inverse_std).clamp(-CLIP, CLIP)


class NestNorm(nn.Module):
    """A `RunningNorm` for each leaf of a nest that holds numbers; the other leaves stay as they are."""

    def __init__(self, shapes: Sequence[Sequence[int] | None]) -> None:
        """Makes the normalisers of the leaves.

        Args:
            shapes: The shapes of the leaves, in the order of `tree.flatten`; None for a leaf that is not
                normalised.
        """
        super().__init__()
        self._ndims = [None if shape is None else len(shape) for shape in shapes]
        self.leaves = nn.ModuleList(
            nn.Identity() if shape is None else RunningNorm(math.prod(shape)) for shape in shapes
        )

    def parts(self, name: str, nest: types.NestedTensor) -> Iterator[tuple[str, RunningNorm, torch.Tensor]]:
        """Yields what to update with a nest of [..., *leaf]: `RunningNorm.parts` of each leaf."""
        for norm, ndim, (path, leaf) in zip(
            self.leaves, self._ndims, tree.flatten_with_path(nest), strict=True
        ):
            if isinstance(norm, RunningNorm) and ndim is not None:
                yield specs.leaf_name(name, path), norm, _rows(leaf, ndim)

    def forward(self, nest: types.NestedTensor) -> types.NestedTensor:
        """Normalises a nest of [..., *leaf]; normalised leaves become float32."""
        leaves = tree.flatten(nest)
        for i, (norm, ndim) in enumerate(zip(self.leaves, self._ndims, strict=True)):
            if ndim is not None:
                leaves[i] = norm(_rows(leaves[i], ndim)).reshape(leaves[i].shape)
        return tree.unflatten_as(nest, leaves)


class EntriesNorm(nn.Module):
    """A normaliser for each entry of a dict of observations, of which entries may be missing."""

    def __init__(self, norms: Mapping[str, nn.Module]) -> None:
        """Takes the normalisers by the names of the entries; `nn.Identity` leaves an entry as it is."""
        super().__init__()
        self._names = sorted(norms)
        self.norms = nn.ModuleList([norms[name] for name in self._names])

    def parts(self, name: str, nest: types.NestedTensor) -> Iterator[tuple[str, RunningNorm, torch.Tensor]]:
        """Yields what to update with a dict of [..., *leaf]: `RunningNorm.parts` of each entry."""
        for entry, norm in zip(self._names, self.norms, strict=True):
            if isinstance(norm, RunningNorm | NestNorm):
                yield from norm.parts(f"{name}[{entry!r}]", nest[entry])

    def forward(self, nest: types.NestedTensor) -> types.NestedTensor:
        """Normalises the entries that there are, each [..., *leaf]."""
        norms = zip(self._names, self.norms, strict=True)
        return {name: norm(nest[name]) for name, norm in norms if name in nest}

    def without(self, entries: Sequence[str]) -> "EntriesNorm":
        """Returns the normaliser of the other entries, whose statistics are shared, not copied."""
        norms = dict(zip(self._names, self.norms, strict=True))
        return EntriesNorm({name: norm for name, norm in norms.items() if name not in entries})


Normalizer: TypeAlias = RunningNorm | NestNorm | EntriesNorm
"""A normaliser of observations, from `make_normalizer`."""


class NormalizedEncoder(encoders.Encoder):
    """An encoder that normalises observations first."""

    def __init__(self, normalizer: Normalizer, encoder: encoders.Encoder) -> None:
        """Takes both.

        Learners of agents over replay update the normaliser with the setting `normalize_observations`, MPO's
        also without, where this is a network's whole encoder, or all of it but a memory. Elsewhere your own
        code does; a learner warns if there are no statistics.
        """
        super().__init__()
        self.normalizer = normalizer
        self.encoder = encoder
        self.output_size = encoder.output_size

    def forward(self, observation: types.NestedTensor) -> torch.Tensor:
        """Encodes a nest of [..., *leaf] -> [..., F]."""
        features: torch.Tensor = self.encoder(self.normalizer(observation))
        return features


def make_normalizer(observation_spec: types.NestedSpec, *, each_entry: bool = False) -> Normalizer | None:
    """Makes the normaliser of observations before their encoder, for all numbers of any dtype and shape.

    Images, which their encoder scales, and discrete values are not normalised. Returns None if nothing is.

    Args:
        observation_spec: A spec or a nest of specs.
        each_entry: Whether the normaliser of a dict also takes observations that lack entries, as a policy's
            may lack the critic's.
    """
    if each_entry:
        norms = {name: make_normalizer(part) for name, part in observation_spec.items()}
        return EntriesNorm({name: nn.Identity() if norm is None else norm for name, norm in norms.items()})
    if encoders.is_vector(observation_spec):
        return RunningNorm(observation_spec.shape[0])
    leaves = tree.flatten(observation_spec)
    are_numbers = [not (isinstance(leaf, specs.DiscreteArray) or encoders.is_image(leaf)) for leaf in leaves]
    shapes = [leaf.shape if is_number else None for leaf, is_number in zip(leaves, are_numbers, strict=True)]
    return NestNorm(shapes) if any(are_numbers) else None


def _rows(x: torch.Tensor, ndim: int) -> torch.Tensor:
    """Reshapes [..., *leaf] to float32 [..., O], where a leaf has `ndim` axes."""
    return x.float().reshape(*x.shape[: x.ndim - ndim], math.prod(x.shape[x.ndim - ndim :]))
