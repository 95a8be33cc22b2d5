"""Reads and writes of the entries of arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from scanopt_cli.loop.codegen.values import Array, Gathered, Length, Memory, Number, Value
from scanopt_cli.loop.codegen.writer import Writer


def row_at(writer: Writer, index: Length, length: Length) -> Length:
    """Return the row at an index, which counts from the end if it is negative; check it."""
    row = writer.chosen(writer.is_less(index, 0), writer.add(index, length), index)
    outside = writer.either(writer.is_less(row, 0), writer.is_at_least(row, length))
    writer.fail_if(outside, IndexError, "index out of bounds")
    return row


class Entries:
    """Reads and writes entries; tells LLVM which of them may be the same memory.

    So it needs no check of that where the code runs. ``written`` are the arrays that are written.
    Whatever else is read or written shares memory with one of them only if its `Memory` says so:
    PyTensor overwrites no array of which an operation reads a part otherwise.
    """

    def __init__(self, writer: Writer, *written: Array) -> None:
        self.writer = writer
        module = writer.builder.module
        self._domain = module.add_metadata([], self_ref=True)
        self._scopes: list[tuple[Memory, Any]] = []
        for array in written:
            if not any(_overlap(array.memory, memory) for memory, _ in self._scopes):
                scope = module.add_metadata([self._domain], self_ref=True)
                self._scopes.append((array.memory, scope))

    def read(self, value: Value, indices: Sequence[Length]) -> Number:
        """Return the entry of a value that is broadcast to the axes of ``indices``."""
        if isinstance(value, Number):
            return value
        if isinstance(value, Gathered):
            return self.read(value.array, self.place(value, indices))
        assert isinstance(value, Array)
        own = [
            0 if isinstance(n, int) and n == 1 else index
            for n, index in zip(value.shape, indices, strict=True)
        ]
        marks = self._marks(value.memory)
        return self.writer.load(self.writer.entry(value, own), value.dtype, marks)

    def write(self, number: Number, array: Array, indices: Sequence[Length]) -> None:
        """Write an entry."""
        marks = self._marks(array.memory)
        self.writer.store(number, self.writer.entry(array, indices), array.dtype, marks)

    def place(self, value: Gathered, indices: Sequence[Length]) -> list[Length]:
        """Return where in its array an entry is that indices pick; check that it is there."""
        writer = self.writer
        at: list[Length] = []
        for dimension, length in enumerate(value.array.shape):
            index = value.picked.get(dimension)
            if index is None:
                axis = dimension if dimension < value.axis else dimension - len(value.picked) + 1
                at.append(indices[axis])
            else:
                picked = self.read(index, [indices[value.axis]])
                at.append(row_at(writer, writer.length(picked), length))
        return at

    def _marks(self, memory: Memory) -> dict[str, Any]:
        """Return what to say of a load or a store: what memory it is of, and what it is not of."""
        add = self.writer.builder.module.add_metadata
        own = [scope for other, scope in self._scopes if _overlap(memory, other)]
        others = [scope for other, scope in self._scopes if not _overlap(memory, other)]
        marks = {"alias.scope": own, "noalias": others}
        return {name: add(scopes) for name, scopes in marks.items() if scopes}


def _overlap(one: Memory, other: Memory) -> bool:
    """Whether two values may be in the same memory."""
    known = {id(memory) for memory in _with_wholes(one)}
    return any(id(memory) in known for memory in _with_wholes(other))


def _with_wholes(memory: Memory) -> Iterator[Memory]:
    yield memory
    for whole in memory.within:
        yield from _with_wholes(whole)
