"""Reads and writes of the entries of arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from scanopt_cli.loop.codegen.hints import AccessGroup, independent
from scanopt_cli.loop.codegen.lengths import is_same
from scanopt_cli.loop.codegen.values import Array, Gathered, Length, Memory, Number, Value
from scanopt_cli.loop.codegen.writer import Writer


def row_at(writer: Writer, index: Length, length: Length) -> Length:
    """Return the row at an index, which counts from the end if it is negative; check it."""
    row = writer.chosen(writer.is_less(index, 0), writer.add(index, length), index)
    outside = writer.either(writer.is_less(row, 0), writer.is_at_least(row, length))
    writer.fail_if(outside, IndexError, "index out of bounds")
    return row


class Entries:
    """Reads and writes the entries of arrays, and writes the loops over them.

    ``written`` are the arrays that are written. LLVM is told of the innermost loop that none of its
    repetitions reads or writes what another one writes, so it needs no check of that where the code
    runs. That is so unless an entry is written several times, as it may be with ``repeats``, or an
    operation reads elsewhere in memory that it writes. Two values share memory only if their
    `Memory` says so: PyTensor overwrites no array of which an operation reads a part otherwise.
    """

    def __init__(self, writer: Writer, *written: Array, repeats: bool = False) -> None:
        self.writer = writer
        self._written = written
        self._group = AccessGroup(writer.builder.module)
        self._is_independent = not repeats

    def over(self, shape: Sequence[Length], write: Callable[[Sequence[Length]], None]) -> None:
        """Write the loops over the axes of a shape; ``write`` is given the indices."""
        self.writer.over_entries(shape, write, self._hints)

    def loop(self, length: Length) -> AbstractContextManager[Length]:
        """Repeat what is written inside for each index below ``length``."""
        return self.writer.loop(length, self._hints)

    def read(self, value: Value, indices: Sequence[Length]) -> Number:
        """Return the entry of a value that is broadcast to the axes of ``indices``."""
        if isinstance(value, Number):
            return value
        if isinstance(value, Gathered):
            self._note_read(value)
            return self.read(value.array, self.place(value, indices))
        assert isinstance(value, Array)
        self._note_read(value)
        own = [
            0 if isinstance(n, int) and n == 1 else index
            for n, index in zip(value.shape, indices, strict=True)
        ]
        return self.writer.load(self.writer.entry(value, own), value.dtype, self._group)

    def write(self, number: Number, array: Array, indices: Sequence[Length]) -> None:
        """Write an entry."""
        self.writer.store(number, self.writer.entry(array, indices), array.dtype, self._group)

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

    def _note_read(self, value: Array | Gathered) -> None:
        """Note whether memory is read that is written too, other than by the same repetition."""
        for array in self._written:
            if overlap(value.memory, array.memory) and not _is_same_place(value, array):
                self._is_independent = False

    def _hints(self) -> Mapping[str, Any]:
        return independent(self._group) if self._is_independent else {}


def _is_same_place(value: Array | Gathered, array: Array) -> bool:
    """Whether each entry of a value is surely where that of an array is."""
    return (
        isinstance(value, Array)
        and value.data is array.data
        and len(value.strides) == len(array.strides)
        and all(map(is_same, value.shape, array.shape))
        and all(map(is_same, value.strides, array.strides))
    )


def overlap(one: Memory, other: Memory) -> bool:
    """Whether two values may be in the same memory."""
    known = {id(memory) for memory in _with_wholes(one)}
    return any(id(memory) in known for memory in _with_wholes(other))


def _with_wholes(memory: Memory) -> Iterator[Memory]:
    yield memory
    for whole in memory.within:
        yield from _with_wholes(whole)
