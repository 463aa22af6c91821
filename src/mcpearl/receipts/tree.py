"""The Merkle tree of a log (RFC 9162). Only the roots of its complete subtrees are kept.

A tree of n leaves is kept as one hash for each bit of n, so adding a leaf costs one hash on average.
"""

from hashlib import sha256

EMPTY = sha256(b"").digest()
_node = sha256(b"\x01").copy  # copying a state that has the prefix is cheaper than a new state


class Tree:
    """The tree of the leaves that were added.

    Args:
        size: How many leaves it has.
        subtrees: The roots of its complete subtrees, the largest first.
    """

    __slots__ = ("size", "subtrees")

    def __init__(self, size: int = 0, subtrees: list[bytes] | None = None) -> None:
        self.size = size
        self.subtrees = subtrees or []

    def copy(self) -> "Tree":
        """Return an independent copy of the tree."""
        return Tree(self.size, self.subtrees.copy())

    def extend(self, leaves: list[bytes]) -> None:
        """Add leaves, by their hashes."""
        subtrees, bits, complete = self.subtrees, self.size, []
        self.size += len(leaves)
        level = leaves
        # One level of the tree after the other: this loop is a good part of the time a record takes.
        while level:
            if bits & 1:
                level = [subtrees.pop(), *level]
            if len(level) & 1:
                complete.append(level[-1])
            nodes: list[bytes] = []
            add, node, pairs = nodes.append, _node, iter(level)
            for left, right in zip(pairs, pairs, strict=False):
                state = node()
                state.update(left + right)
                add(state.digest())
            level = nodes
            bits >>= 1
        subtrees += reversed(complete)

    def root(self) -> bytes:
        """Return the root hash."""
        if not self.subtrees:
            return EMPTY
        *larger, root = self.subtrees
        for subtree in reversed(larger):
            state = _node()
            state.update(subtree + root)
            root = state.digest()
        return root
