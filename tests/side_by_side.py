"""Several learners in threads of this process, and noise that is drawn for the whole batch."""

import threading
from collections.abc import Callable
from typing import Any

import torch
import tree
from torch import overrides

from minerva_acme import learners


def together(
    file: Any,
    work: Callable[[learners.Ranks], Any],
    size: int = 2,
    *,
    may_fail: bool = False,
    **options: Any,
) -> list[Any]:
    """Calls a function with the `Ranks` of each learner, at the same time; returns the results.

    Results may be exceptions if they `may_fail`.
    """
    results: list[Any] = [None] * size

    def call(rank: int) -> None:
        try:
            with learners.Ranks(file, rank, size, **options) as ranks:
                results[rank] = work(ranks)
        except Exception as error:
            results[rank] = error

    threads = [threading.Thread(target=call, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)
    for result in results:
        if isinstance(result, Exception) and not may_fail:
            raise result
    return results


def rows(batch: Any, ranks: learners.Ranks | None, axis: int = 0) -> Any:
    """The rows of a batch that are one learner's share; all of them if there is one learner."""
    if ranks is None:
        return batch
    return tree.map_structure(lambda x: x.tensor_split(ranks.size, dim=axis)[ranks.rank].clone(), batch)


class WholeNoise(overrides.TorchFunctionMode):
    """Draws all noise for the whole batch, and gives each learner its rows.

    Args:
        ranks: The learners; None gives all rows.
        whole: The number of rows of the whole batch, which no other axis of the noise has, nor a share's.
        num_minibatches: The number of minibatches that a permutation of samples is cut into.
        states: By learner, the number of the states that a policy is improved in, if they are not as many as
            rows. As with rows, no other axis of the noise has a length of theirs.
    """

    def __init__(self, ranks, whole, num_minibatches=0, size=2, seed=0, states=()):
        super().__init__()
        self._shares = [shares for shares in (list(states), [whole // size] * size) if shares]
        self._ranks, self._whole, self._num_minibatches, self._size = ranks, whole, num_minibatches, size
        self._generator = torch.Generator().manual_seed(seed)

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if function not in (torch.randn, torch.rand, torch.randperm):
            return function(*args, **kwargs)
        kwargs["generator"] = self._generator
        if function is torch.randperm:
            return self._permute(*args)
        shape = list(torch.Size(args if isinstance(args[0], int) else args[0]))
        for shares in self._shares:
            own = sum(shares) if self._ranks is None else shares[self._ranks.rank]
            if own in shape:
                break
        axis = shape.index(own)
        shape[axis] = sum(shares)
        noise = function(shape, **kwargs)
        return noise if self._ranks is None else noise.split(shares, axis)[self._ranks.rank]

    def _permute(self, number):
        """A minibatch of the whole batch joins those of the shares. Samples are [T, E], shares [T, E / R]."""
        share = number if self._ranks else number // self._size
        orders = [torch.randperm(share, generator=self._generator) for _ in range(self._size)]
        if self._ranks is not None:
            return orders[self._ranks.rank]
        environments = self._whole // self._size
        whole = [
            order // environments * self._whole + rank * environments + order % environments
            for rank, order in enumerate(orders)
        ]
        cut = zip(*(order.tensor_split(self._num_minibatches) for order in whole), strict=True)
        return torch.cat([part for parts in cut for part in parts])
