"""Memory that a loop allocates once, and uses again in each step.

A buffer is taken for a result of a step, and is free again when nothing reads the result. It is
allocated before the loop if the shape is known there, else in the step, whenever the size changes.
A state and a buffer exchange their memory when the next state is in the buffer, so what a buffer
holds is a pointer that changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from llvmlite import ir

from scanopt_cli.loop.codegen.values import Array, Buffer, Length


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
        self, dtype: Any, shape: Sequence[Length], allocate: Callable[[], Array]
    ) -> Buffer | None:
        """Return a buffer for an array; ``None`` if its shape is not known before the loop.

        ``allocate`` writes what allocates the memory.
        """
        if not all(map(self.is_known_before, shape)):
            return None
        form = (dtype.str, tuple(n if isinstance(n, int) else id(n) for n in shape))
        free = self.free.get(form)
        if free:
            buffer = free.pop()
        elif self.parent is not None and all(map(self.parent.is_known_before, shape)):
            found = self.parent.take(dtype, shape, allocate)
            assert found is not None
            buffer = found
            self.taken.append(buffer)
        else:
            with self.ahead():
                array = allocate()
                buffer = replace(Buffer.of(self.builder, array), shape=shape)
                buffer.form = form
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
