"""The tree agrees with published vectors and with another implementation of RFC 9162."""

import pytest

from mcpearl.receipts.proofs import _path
from mcpearl.receipts.tree import Tree
from mcpearl.receipts.verifier import Discrepancy, leaf_hash, root_from_path

# The leaves and roots that the tests of Certificate Transparency have used since RFC 6962.
LEAVES = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657"]
LEAVES.append("606162636465666768696a6b6c6d6e6f")
ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_roots_are_those_of_certificate_transparency() -> None:
    tree = Tree()
    assert tree.root().hex() == EMPTY
    for leaf, root in zip(LEAVES, ROOTS, strict=True):
        tree.extend([leaf_hash(bytes.fromhex(leaf))])
        assert tree.root().hex() == root


def test_another_implementation_has_the_same_roots_and_paths() -> None:
    from pymerkle import InmemoryTree

    other, tree, hashes = InmemoryTree(algorithm="sha256"), Tree(), bytearray()
    for number in range(150):
        entry = b"record %d" % number
        other.append_entry(entry)
        hashes += leaf_hash(entry)
        tree.extend([leaf_hash(entry)])
        assert other.get_root() == tree.root()
    for number in range(150):
        theirs = other.prove_inclusion(number + 1, 150)
        ours = _path(number, 0, 150, hashes)
        assert {leaf_hash(b"record %d" % number), *ours} == set(theirs.path)
        assert root_from_path(leaf_hash(b"record %d" % number), number, 150, ours) == tree.root()


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 9, 64, 100])
def test_a_path_leads_to_the_root_of_its_own_leaf_only(size: int) -> None:
    leaves = [leaf_hash(b"%d" % number) for number in range(size)]
    tree = Tree()
    tree.extend(leaves)
    hashes = bytearray(b"".join(leaves))
    for number in range(size):
        path = _path(number, 0, size, hashes)
        assert root_from_path(leaves[number], number, size, path) == tree.root()
        assert root_from_path(leaf_hash(b"x"), number, size, path) != tree.root()
        with pytest.raises(Discrepancy, match="too long"):
            root_from_path(leaves[number], number, size, [*path, bytes(32)])
        if path:
            with pytest.raises(Discrepancy, match="too short"):
                root_from_path(leaves[number], number, size, path[:-1])
    with pytest.raises(Discrepancy, match="is not in a log"):
        root_from_path(leaves[0], size, size, [])
