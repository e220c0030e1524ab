"""Rows in memory as PyTorch tensors, on the learner's device."""

from typing import Any

import numpy as np
import torch

from minerva_acme.replay.memory import rows

_MAX_STAGED = 1024  # rows

# The signed integers that stand in for unsigned ones of the same size, which torch cannot index.
_STAND_INS = {np.dtype(f"uint{bits}"): np.dtype(f"int{bits}") for bits in (16, 32, 64)}


class TensorRowStore(rows.RowStore):
    """A row store whose rows and batches are tensors. Batches are gathered on the rows' device."""

    def __init__(self, device: torch.device | str, *arguments: Any) -> None:
        """Makes an empty store.

        Args:
            device: The device of rows and batches.
            arguments: The arguments of `RowStore`.
        """
        self._device = torch.device(device)
        super().__init__(*arguments)

    def zeros(self, shape: tuple[int, ...]) -> "TensorRows":
        return TensorRows(shape, self.spec.dtype, self._device)

    def take(self, places: np.ndarray, padding: np.ndarray | None) -> torch.Tensor:
        batch = self.rows.tensor()[self._send(places)]
        if padding is not None:
            batch[self._send(padding)] = 0
        return batch.view(self.rows.torch_dtype)

    def to_numpy(self) -> np.ndarray:
        return self.rows.tensor().view(self.rows.torch_dtype).cpu().numpy()

    def _send(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array).to(self._device, non_blocking=True)


class TensorRows:
    """Rows on a device. Single rows are collected on the host and sent together when they are needed."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype, device: torch.device) -> None:
        stored = _STAND_INS.get(dtype, dtype)
        self.torch_dtype = torch.from_numpy(np.empty(0, dtype)).dtype
        self._tensor = torch.from_numpy(np.zeros(shape, stored)).to(device)
        self._staged = np.empty((_MAX_STAGED, *shape[1:]), dtype)
        self._places = np.empty(_MAX_STAGED, np.int64)
        self._num_staged = 0

    def __setitem__(self, place: Any, row: Any) -> None:
        if isinstance(place, slice):
            self._tensor[place] = torch.as_tensor(row).view(self._tensor.dtype).to(self._tensor.device)
            return
        if self._num_staged == _MAX_STAGED:
            self.tensor()
        self._staged[self._num_staged] = row
        self._places[self._num_staged] = place
        self._num_staged += 1

    def __getitem__(self, places: slice) -> torch.Tensor:
        return self.tensor()[places]

    def tensor(self) -> torch.Tensor:
        """Returns all rows. Unsigned integers of more than 8 bits are returned as signed ones."""
        count, self._num_staged = self._num_staged, 0
        if count:
            device = self._tensor.device
            places, staged = self._places[:count], self._staged[:count]
            # In a small store a place may have been written twice, of which `index_copy_` could keep either.
            _, newest = np.unique(places[::-1], return_index=True)
            if len(newest) < count:
                places, staged = places[::-1][newest], staged[::-1][newest]
            self._tensor.index_copy_(
                0,
                torch.from_numpy(places).to(device),
                torch.from_numpy(staged).view(self._tensor.dtype).to(device),
            )
        return self._tensor
