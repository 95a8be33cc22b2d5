"""Memory that a loop allocates once, and uses again in each step.

A buffer is taken for a result of a step, and is free again when nothing reads the result. It is
allocated before the loop if the shape is known there, else in the step, whenever the size changes.
A state and a buffer exchange their memory when the next state is in the buffer, so what a buffer
holds is a pointer that changes.

Small arrays of known lengths are on the stack of the function, and stay there. LLVM keeps their
entries in registers, unless an index that varies names one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from typing import Any

from llvmlite import ir

from scanopt_cli.loop.codegen.values import Buffer, Length

_MOST_ENTRIES = 40
"""So many entries, at most, has an array on the stack.

With up to 64, a filter of eight states is 4% faster, and a batch of 15x3 probabilities 15% slower.
"""
_MOST_BYTES = 1 << 16
"""So much of the stack one function takes: threads may have little."""
_CACHE_LINE = 64


@dataclass(eq=False, slots=True)
class Stack:
    """The stack of a function, as far as small arrays are on it."""

    taken: int = 0

    def room(self, builder: Any, entry: Any, size: int, shape: Sequence[Length]) -> Buffer | None:
        """Return a buffer for arrays of a shape; ``None`` unless lengths are known and few.

        Parameters
        ----------
        entry, size
            LLVM's type of an entry, and its bytes.
        """
        known = [n for n in shape if isinstance(n, int)]
        count = prod(known)
        if count > _MOST_ENTRIES or len(known) < len(shape):
            return None
        self.taken += -(-count * size // _CACHE_LINE) * _CACHE_LINE
        if self.taken > _MOST_BYTES:
            return None
        with builder.goto_entry_block():
            room = builder.alloca(ir.ArrayType(entry, count))
            room.align = _CACHE_LINE
            data = builder.bitcast(room, entry.as_pointer())
        no_record = ir.IntType(8).as_pointer()(None)
        return Buffer(data, no_record, shape, is_on_stack=True)


@dataclass(eq=False, slots=True)
class Pool:
    """The buffers of a loop.

    Attributes
    ----------
    builder
        Where instructions go.
    before
        The block before the loop that is still open.
    outside
        The blocks that are done before the loop starts.
    parent
        The pool of the loop around it.
    """

    builder: Any
    before: Any
    outside: set[int]
    parent: Pool | None = None
    made: list[Buffer] = field(default_factory=list)
    free: dict[object, list[Buffer]] = field(default_factory=dict)
    taken: list[Buffer] = field(default_factory=list)

    def is_known_before(self, length: Length) -> bool:
        """Whether a length is known before the loop."""
        if isinstance(length, int) or not isinstance(length, ir.Instruction):
            return True
        return id(length.parent) in self.outside

    def take(
        self, dtype: Any, shape: Sequence[Length], make: Callable[[], Buffer]
    ) -> Buffer | None:
        """Return a buffer for an array; ``None`` if its shape is not known before the loop.

        ``make`` writes what makes one.
        """
        if not all(map(self.is_known_before, shape)):
            return None
        form = (dtype.str, tuple(n if isinstance(n, int) else id(n) for n in shape))
        free = self.free.get(form)
        if free:
            buffer = free.pop()
        elif self.parent is not None and all(map(self.parent.is_known_before, shape)):
            found = self.parent.take(dtype, shape, make)
            assert found is not None
            buffer = found
            self.taken.append(buffer)
        else:
            with self.ahead():
                buffer = make()
            buffer.shape, buffer.form = shape, form
            self.made.append(buffer)
        return buffer

    @contextmanager
    def ahead(self) -> Iterator[None]:
        """Write what is written inside before the loop."""
        block, blocks = self.builder.basic_block, self.builder.function.blocks
        n_blocks = len(blocks)
        self.builder.position_at_end(self.before)
        yield
        self.before = self.builder.basic_block
        self.outside |= {id(one) for one in blocks[n_blocks:]}
        self.builder.position_at_end(block)

    def give_back(self, buffer: Buffer) -> None:
        """Let another result use a buffer."""
        self.free.setdefault(buffer.form, []).append(buffer)
