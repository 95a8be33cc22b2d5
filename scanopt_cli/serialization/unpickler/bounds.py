"""Limits against amplification: small files that make much of text, keys or repeated parts."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.misc.frozendict import frozendict

from scanopt_cli.ir.interning import is_sparse

_MOST_TEXT = 1 << 20
"""How many bytes one text, or one number, may have; arrays are written as bytes."""
_MOST_TEXT_IN_ALL = 1 << 26
_SHORT = 255
_OF_BYTES = (b"B", b"\x8e", b"\x96")
"""The opcodes BINBYTES, BINBYTES8 and BYTEARRAY8."""

KEY_PARTS = 4096
"""How many values a dictionary key or set member may consist of, tuples counted in full."""
_MOST_KEY_PARTS = 20_000_000
_MOST_COLLISIONS = 64
_HASHED_BY_VALUE = (int, float, complex, bytes, tuple, frozenset)

PART = 32
"""How many bytes of a text or an array count as one part of a container."""
BODY_NODE = 32
"""How many parts a node of a body counts for, which an Op that has the body makes anew."""
_MOST_PARTS = 1_000_000
_MOST_PER_PART = 4
_DEEPEST = 500
_MOST_GRAPH_NODES = 200_000
_MOST_ALIKE, _MOST_SPARSE = 1_600, 300


class TextBoundedStream(io.BytesIO):
    """Gives `pickletools` no more text to decode than a graph may have: it may swell fourfold."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self._data = data
        self._left = _MOST_TEXT_IN_ALL

    def read(self, size: int | None = -1, /) -> bytes:
        """Return the next ``size`` bytes; `ValueError` if they are too much text."""
        if size is not None and size > _SHORT and not self._is_of_bytes():
            self._spend(size)
        return super().read(size)

    def readline(self, size: int | None = -1, /) -> bytes:
        """Return the next line; `ValueError` if it is too much text."""
        line = super().readline(size if 0 <= (size or -1) <= _MOST_TEXT else _MOST_TEXT + 1)
        self._spend(len(line))
        return line

    def _spend(self, size: int) -> None:
        self._left -= size
        if size > _MOST_TEXT or self._left < 0:
            raise ValueError("it has more text than a graph (arrays are text below protocol 3)")

    def _is_of_bytes(self) -> bool:
        """Whether what comes next is the argument of an opcode of bytes.

        In front of it stand the opcode and a length of 4 or 8 bytes, least significant first; no
        file is so large that the last four of 8 are not zero.
        """
        here = self.tell()
        width = 8 if self._data[max(here - 4, 0) : here] == bytes(4) else 4
        return self._data[max(here - width - 1, 0) : here - width] in _OF_BYTES


class KeyBounds:
    """The dictionary keys and members of sets of a file, of bounded size, few of them of one hash.

    Hashing a deep or wide nest of tuples crashes or hangs, and so does a dictionary of keys with
    equal hashes. (Hashes of text are random.)
    """

    def __init__(self) -> None:
        self._parts = 0
        self._by_hash: dict[int, list[Any]] = {}

    def checked(self, key: Any) -> Any:
        """Return ``key``; `ValueError` if it is too large, or has the hash of too many others."""
        if type(key) in (tuple, frozenset):
            self._check_size(key)
        if isinstance(key, _HASHED_BY_VALUE):
            alike = self._by_hash.setdefault(hash(key), [])
            if key not in alike:
                alike.append(key)
            if len(alike) > _MOST_COLLISIONS:
                raise ValueError("too many dictionary keys have one hash")
        return key

    def _check_size(self, key: Any) -> None:
        pending, left = [key], KEY_PARTS
        while pending:
            part = pending.pop()
            left -= 1
            is_nest = type(part) in (tuple, frozenset)
            if left < 0 or (is_nest and len(part) > left):
                raise ValueError("a dictionary key or a member of a set is too large")
            if is_nest:
                pending.extend(part)
        self._parts += KEY_PARTS - left
        if self._parts > _MOST_KEY_PARTS:
            raise ValueError("its dictionary keys are too large")


class NestedSizes:
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


class UseCounts:
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
        self._alike: dict[int, set[Hashable]] = {}
        self._comparisons: Counter[int] = Counter()

    def count(self, *parts: Any) -> None:
        """Count the parts of what a call uses: its arguments, and the state of what it makes.

        Raises
        ------
        ValueError
            If all the calls use more than a few times what the file has.
        """
        self._add(sum(map(self._size, parts)))

    def count_as(self, used: Any, size: int) -> None:
        """Count one use of an object, which has to live as long as this, as ``size`` parts."""
        if id(used) not in self._sizes:
            self._sizes[id(used)] = size
            self._distinct += size
        self._add(size)

    def count_graph(self, graph: FunctionGraph) -> None:
        """Count the nodes of a graph outside of Ops; a file has one or two such graphs.

        Raises
        ------
        ValueError
            If these graphs, which may share nodes, have too many of them.
        """
        self._graph_nodes += len(graph.apply_nodes)
        if self._graph_nodes > _MOST_GRAPH_NODES:
            raise ValueError("it has too many graphs outside of Ops")

    def count_constants(self, inputs: Iterable[Variable]) -> None:
        """Count the comparisons of the constants of inner graphs that have one hash.

        PyTensor looks each up among the different ones that it has seen, by a hash that is little
        more than their sum. So one constant may be written any number of times.

        Raises
        ------
        ValueError
            If there are more than a bounded number of constants of one hash can cause.
        """
        for variable in inputs:
            if isinstance(variable, Constant) and id(variable) not in self._constants:
                self._constants[id(variable)] = variable
                signature = hash(variable.signature())
                most = _MOST_SPARSE if is_sparse(variable.data) else _MOST_ALIKE
                different = self._alike.setdefault(signature, set())
                different.add(_exact_value(variable))
                self._comparisons[signature] += len(different)
                if self._comparisons[signature] > most * (most + 1) // 2:
                    raise ValueError("too many constants that PyTensor hashes alike")

    def _add(self, size: int) -> None:
        self._used += size
        if self._used > _MOST_PARTS + _MOST_PER_PART * self._distinct:
            raise ValueError("it uses the same parts too often")

    def _size(self, record: Any) -> int:
        parts = _members(record)
        own = 1
        if isinstance(record, str | bytes | bytearray):
            parts, own = (), 1 + len(record) // PART
        if parts is None:
            return 1
        known = self._sizes.get(id(record))
        if known is None:
            self._sizes[id(record)] = 1  # it may hold itself
            self._distinct += own + len(parts)
            known = self._sizes[id(record)] = own + sum(map(self._size, parts))
        return known


def _exact_value(constant: Constant) -> Hashable:
    """Return a key of a number or an array, equal for two that PyTensor takes for equal.

    Whatever else a constant holds is another key each time.
    """
    data = constant.data
    if not isinstance(data, np.ndarray | np.generic):
        return id(constant)
    content = blake2b(np.ascontiguousarray(data).tobytes()).digest()
    return type(constant), constant.type, data.dtype, data.shape, content
