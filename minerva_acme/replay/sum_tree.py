"""Drawing with probability proportional to a weight, in logarithmic time."""

import numpy as np

_FEW = 8  # the most weights whose sums are updated one by one


class SumTree:
    """A binary tree whose leaves are weights and whose inner nodes hold the sum of their two children.

        node 1                      10
        nodes 2, 3           4             6
        leaves 4 to 7     3     1       0     6      weights of the places 0 to 3

    Sums are updated together when they are next needed after weights are set. Every sum is computed from
    its children, never by differences, so the same weights give the same tree, bit for bit.
    """

    def __init__(self, capacity: int) -> None:
        """Makes a tree whose weights are all 0.

        Args:
            capacity: The number of places.
        """
        self._num_levels = max(0, capacity - 1).bit_length()
        self._num_leaves = 1 << self._num_levels
        self._nodes = np.zeros(2 * self._num_leaves)
        self._stale: list[int] = []  # leaves that have changed since the sums were computed

    @property
    def nbytes(self) -> int:
        """The size of the tree in bytes."""
        return self._nodes.nbytes

    def set(self, place: int, weight: float) -> None:
        """Sets a weight, >= 0."""
        leaf = self._num_leaves + place
        self._nodes[leaf] = weight
        self._stale.append(leaf)
        if len(self._stale) > self._num_leaves:
            self._settle()

    insert = set  # of a new item; nothing else changes with it

    def set_many(self, places: np.ndarray, weights: np.ndarray) -> None:
        """Sets weights [n] at places [n]. If a place occurs several times, its last weight counts."""
        leaves = self._num_leaves + places
        self._nodes[leaves] = weights
        self._stale.extend(leaves.tolist())
        if len(self._stale) > self._num_leaves:
            self._settle()

    def total(self) -> float:
        """Returns the sum of all weights."""
        self._settle()
        return float(self._nodes[1])

    def weights(self, places: np.ndarray) -> np.ndarray:
        """Returns the weights at places."""
        return self._nodes[self._num_leaves + places]

    def find(self, points: np.ndarray) -> np.ndarray:
        """Returns, for each point in [0, total), the place whose share of the total contains it."""
        self._settle()
        leaves = self._descend(points, keep_left=False)
        # Rounding may have moved a point beyond the last weight of a subtree, to a place of weight 0.
        lost = np.flatnonzero(self._nodes[leaves] == 0.0)
        if lost.size:
            leaves[lost] = self._descend(points[lost], keep_left=True)
        return leaves - self._num_leaves

    def _descend(self, points: np.ndarray, keep_left: bool) -> np.ndarray:
        nodes, left_over = np.ones(len(points), np.intp), points.copy()
        for _ in range(self._num_levels):
            nodes <<= 1
            left = self._nodes.take(nodes)
            is_right = left_over >= left
            if keep_left:
                is_right &= self._nodes[nodes + 1] > 0.0
            left_over -= left * is_right
            nodes += is_right
        return nodes

    def _settle(self) -> None:
        """Brings the sums up to date."""
        nodes, stale = self._nodes, self._stale
        if len(stale) * self._num_levels > self._num_leaves:
            width = self._num_leaves
            while width > 1:
                width //= 2
                children = nodes[2 * width : 4 * width]
                nodes[width : 2 * width] = children[::2] + children[1::2]
        elif len(stale) > _FEW:
            parents = np.array(stale, np.intp)
            for _ in range(self._num_levels):
                parents >>= 1
                nodes[parents] = nodes[2 * parents] + nodes[2 * parents + 1]
        else:
            for leaf in stale:
                node = leaf >> 1
                while node:
                    nodes[node] = nodes.item(2 * node) + nodes.item(2 * node + 1)
                    node >>= 1
        stale.clear()
