"""What LLVM is told of loops over entries, which it could not know or would decide otherwise.

That no repetition of a loop reads or writes what another one writes is said of that loop alone, by
a group of its reads and writes. To say of memory that it is not the same as other memory would say
so of the whole function: the state of a step is in memory that the step before wrote, and LLVM
would read it too early.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any, TypeGuard

from llvmlite import ir
from llvmlite.ir.values import MDValue
from pytensor.link.numba.dispatch._llvmlite_self_ref import ensure_self_ref_metadata_support

from scanopt_cli.loop.codegen.values import Length

ensure_self_ref_metadata_support()  # each loop has a name of its own

Hints = Mapping[str, Any]
"""By name, without prefix: a number, what a module knows, ``None``, or hints for what is made."""

WRITTEN_ONCE: Hints = {"unroll.disable": 1}
"""What tells LLVM to write what a loop repeats once."""
_VECTORS_WRITTEN_OUT: Hints = {**WRITTEN_ONCE, "vectorize.followup_all": {"unroll.full": None}}
"""What tells LLVM to make vectors of a loop, and to write out the loop over the vectors.

Where several loops over the same few entries follow each other, those are in registers between.
"""
ONE_AT_A_TIME: Hints = {"vectorize.enable": 0}
"""What tells LLVM to make no vectors of what a loop repeats.

Of a loop that copies as many entries as a vector has, LLVM 22 reads the last one from beyond the
end, if it is needed after the loop.
"""
_NUMBER = ir.IntType(32)
_WIDTH = 8
"""So many entries fill a vector, or two."""
_MOST_WRITTEN_OUT = 9
"""The most entries for which code is written one by one: those of a matrix of 3x3."""
_MOST_IN_PARTS = 64
"""What is left of a longer axis takes little of the time."""
_MOST_IN_REGISTERS = 32
"""The entries of four vectors, or eight."""


class AccessGroup(MDValue):
    """The name of some reads and writes, which is no other's."""

    def __init__(self, module: Any) -> None:
        super().__init__(module, (), name=str(len(module.metadata)))

    def descr(self, buf: Any) -> None:
        """Write the name into LLVM's code."""
        buf += ("distinct !{}", "\n")

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other

    def add(self, instruction: Any) -> None:
        """Let a read or a write be of the group."""
        instruction.set_metadata("llvm.access.group", self)


def independent(group: AccessGroup) -> Hints:
    """Return what tells LLVM that no repetition writes what another one reads or writes."""
    return {"parallel_accesses": group}


def is_written_out(shape: Sequence[Length]) -> TypeGuard[Sequence[int]]:
    """Whether what is done for each entry of a shape is written for each, and not in loops.

    Of few entries that fill no vector, LLVM finds better code so, in registers.
    """
    if not all(isinstance(length, int) for length in shape):
        return False
    size = prod(shape)
    return 1 < size <= _MOST_WRITTEN_OUT and bool(size % _WIDTH)


def in_vectors(length: Length) -> Iterator[tuple[int, Length, Hints]]:
    """Yield parts of an axis: the first entry, how many there are, and hints for their loop.

    Parts of eight or four entries fill vectors. LLVM would write out an axis of few entries, and
    find no vectors in that; or compute so many at a time that most are left for one by one.
    """
    if not isinstance(length, int) or length > _MOST_IN_PARTS:
        yield 0, length, {}
        return
    half = length - length % _WIDTH
    rest = length - length % 4
    of_vectors = _VECTORS_WRITTEN_OUT if length <= _MOST_IN_REGISTERS else WRITTEN_ONCE
    for first, end in ((0, half), (half, rest), (rest, length)):
        if end > first:
            yield first, end - first, {} if end > rest else of_vectors


def hint(branch: Any, *hints: Hints) -> None:
    """Give LLVM hints about the loop that a branch repeats."""
    module = branch.module
    made = [node for some in hints for node in _nodes(module, some)]
    if made:
        branch.set_metadata("llvm.loop", module.add_metadata(made, self_ref=True))


def _nodes(module: Any, hints: Hints) -> Iterator[Any]:
    """Yield hints as a module has them."""
    for name, value in hints.items():
        operands = [ir.MetaDataString(module, f"llvm.loop.{name}")]
        if isinstance(value, Mapping):
            operands += _nodes(module, value)
        elif value is not None:
            operands.append(_NUMBER(value) if isinstance(value, int) else value)
        yield module.add_metadata(operands)
