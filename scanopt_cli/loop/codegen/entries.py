"""Reads and writes of the entries of arrays, in loops over them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from pytensor.link.numba.dispatch._llvmlite_self_ref import ensure_self_ref_metadata_support

from scanopt_cli.loop.codegen.values import Array, Gathered, Length, Memory, Number, Value
from scanopt_cli.loop.codegen.writer import Writer

ensure_self_ref_metadata_support()


def over_entries(
    writer: Writer, shape: Sequence[Length], write: Callable[[Sequence[Length]], None]
) -> None:
    """Write a loop for each axis, the last one innermost."""

    def nest(indices: list[Length]) -> None:
        if len(indices) == len(shape):
            write(indices)
            return
        with writer.loop(shape[len(indices)]) as index:
            nest([*indices, index])

    nest([])


def row_at(writer: Writer, index: Length, length: Length) -> Length:
    """Return the row at an index, which counts from the end if it is negative; check it."""
    row = writer.chosen(writer.is_less(index, 0), writer.add(index, length), index)
    outside = writer.builder.or_(writer.is_less(row, 0), writer.is_at_least(row, length))
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
            return self._picked(value, indices)
        assert isinstance(value, Array)
        own = [
            0 if isinstance(n, int) and n == 1 else index
            for n, index in zip(value.shape, indices, strict=True)
        ]
        found = self.writer.builder.load(self.writer.entry(value, own))
        self._tell(found, value.memory)
        if value.dtype == np.bool_:
            code = self.writer.builder.icmp_unsigned("!=", found, found.type(0))
            return Number(code, value.dtype)
        return Number(found, value.dtype)

    def write(self, number: Number, array: Array, indices: Sequence[Length]) -> None:
        """Write an entry."""
        writer = self.writer
        code = writer.cast(number, array.dtype).code
        if array.dtype == np.bool_:
            code = writer.builder.zext(code, ir.IntType(8))
        stored = writer.builder.store(code, writer.entry(array, indices))
        self._tell(stored, array.memory)

    def _picked(self, value: Gathered, indices: Sequence[Length]) -> Number:
        writer, array = self.writer, value.array
        at: list[Length] = []
        for dimension, length in enumerate(array.shape):
            index = value.picked.get(dimension)
            if index is None:
                axis = dimension if dimension < value.axis else dimension - len(value.picked) + 1
                at.append(indices[axis])
            else:
                picked = self.read(index, [indices[value.axis]])
                at.append(row_at(writer, writer.length(picked), length))
        return self.read(array, at)

    def _tell(self, instruction: Any, memory: Memory) -> None:
        """Say of a load or a store what memory it is of, and what it is not of."""
        add = self.writer.builder.module.add_metadata
        own = [scope for other, scope in self._scopes if _overlap(memory, other)]
        others = [scope for other, scope in self._scopes if not _overlap(memory, other)]
        if own:
            instruction.set_metadata("alias.scope", add(own))
        if others:
            instruction.set_metadata("noalias", add(others))


def _overlap(one: Memory, other: Memory) -> bool:
    """Whether two values may be in the same memory."""
    known = {id(memory) for memory in _with_wholes(one)}
    return any(id(memory) in known for memory in _with_wholes(other))


def _with_wholes(memory: Memory) -> Iterator[Memory]:
    yield memory
    for whole in memory.within:
        yield from _with_wholes(whole)
