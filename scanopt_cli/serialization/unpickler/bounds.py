"""Bounds on what a small file can make large: parts that occur, or are used, again and again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.misc.frozendict import frozendict

from scanopt_cli.ir.interning import is_sparse
from scanopt_cli.serialization.unpickler.records import Call

PART = 32
"""How many bytes of a text or an array count as one part of a container."""
_MOST_PARTS = 1_000_000
_MOST_PER_PART = 4
_DEEPEST = 500
_MOST_GRAPH_NODES = 200_000
_MOST_ALIKE, _MOST_SPARSE = 1_600, 300


class Nests:
    """Sizes of nested containers, each of which may occur in several others.

    Whoever hashes, prints or compares a nest goes through each container wherever it occurs, and in
    C as deep as it goes: a small file could make that take for ever, or crash. A text or an array
    counts as one part for each `PART` bytes.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, int]] = {}
        self._long: dict[int, int] = {}
        self._parts = 0

    def check(self, made: Any) -> None:
        """Count the parts of ``made``, which has to live as long as this.

        Raises
        ------
        ValueError
            If it is too deep, or its parts are too many, counted wherever they occur.
        """
        parts = _members(made)
        if parts is None:
            return
        self._parts += len(parts)
        inner = [self._known.get(id(part)) or (self._size_of_one(part), 0) for part in parts]
        size = 1 + sum(one for one, _ in inner)
        depth = 1 + max((one for _, one in inner), default=0)
        if depth > _DEEPEST:
            raise ValueError("lists nested too deeply")
        if size > _MOST_PARTS + _MOST_PER_PART * self._parts:
            raise ValueError("lists that hold each other too often")
        self._known[id(made)] = (size, depth)

    def size_of(self, made: Any) -> int:
        """Return how many parts ``made`` has, counted wherever they occur; it was checked."""
        known = self._known.get(id(made))
        return self._size_of_one(made) if known is None else known[0]

    def _size_of_one(self, part: Any) -> int:
        """Return the size of what is no container; the file itself accounts for its first use."""
        if not isinstance(part, str | bytes | np.ndarray):
            return 1
        length = part.nbytes if isinstance(part, np.ndarray) else len(part)
        size = 1 + length // PART
        if size > 1 and id(part) not in self._long:
            self._long[id(part)] = size
            self._parts += size
        return size


def _members(made: Any) -> Sequence[Any] | None:
    """Return what a container holds; ``None`` for what is no container."""
    match made:
        case list() | tuple() | set() | frozenset():
            return tuple(made)
        case dict() | frozendict():
            return (*made.keys(), *made.values())
        case slice():
            return made.start, made.stop, made.step
    return None


class Uses:
    """How many parts the calls of a file use, counted at each use.

    Whoever makes an object goes through the arguments and the state that it is made of, which many
    others may share.
    """

    def __init__(self) -> None:
        self._sizes: dict[int, int] = {}
        self._distinct = 0
        self._used = 0
        self._graph_nodes = 0
        self._constants: dict[int, Constant] = {}
        self._alike: Counter[int] = Counter()

    def count(self, record: Call) -> None:
        """Count the parts of what ``record`` uses.

        Raises
        ------
        ValueError
            If all the calls use more than a few times what the file has.
        """
        self._add(self._size(record.args) + self._size(record.state))

    def count_as(self, used: Any, size: int) -> None:
        """Count one use of an object, which has to live as long as this, as ``size`` parts."""
        if id(used) not in self._sizes:
            self._sizes[id(used)] = size
            self._distinct += size
        self._add(size)

    def count_graph(self, graph: FunctionGraph) -> None:
        """Count the nodes of a graph outside of Ops, of which a file has one or two.

        Raises
        ------
        ValueError
            If they are many graphs, which may share their nodes.
        """
        self._graph_nodes += len(graph.apply_nodes)
        if self._graph_nodes > _MOST_GRAPH_NODES:
            raise ValueError("it has too many graphs outside of Ops")

    def count_constants(self, inputs: Iterable[Variable]) -> None:
        """Count the constants of inner graphs by PyTensor's hash: little more than their sums.

        Raises
        ------
        ValueError
            If too many have one hash, so that PyTensor would compare each with each.
        """
        for variable in inputs:
            if isinstance(variable, Constant) and id(variable) not in self._constants:
                self._constants[id(variable)] = variable
                signature = hash(variable.signature())
                most = _MOST_SPARSE if is_sparse(variable.data) else _MOST_ALIKE
                self._alike[signature] += 1
                if self._alike[signature] > most:
                    raise ValueError("too many constants that PyTensor hashes alike")

    def _add(self, size: int) -> None:
        self._used += size
        if self._used > _MOST_PARTS + _MOST_PER_PART * self._distinct:
            raise ValueError("it uses the same parts too often")

    def _size(self, record: Any) -> int:
        kind = type(record)
        if kind in (str, bytes, bytearray):
            parts: Sequence[Any] = ()
            own = 1 + len(record) // PART
        elif kind is dict:
            parts, own = (*record.keys(), *record.values()), 1
        elif kind in (list, tuple, set, frozenset):
            parts, own = tuple(record), 1
        else:
            return 1
        known = self._sizes.get(id(record))
        if known is None:
            self._sizes[id(record)] = 1  # it may hold itself
            self._distinct += own + len(parts)
            known = self._sizes[id(record)] = own + sum(map(self._size, parts))
        return known
