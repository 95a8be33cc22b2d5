"""Solutions of small systems for many right sides, by the factors that LAPACK computes.

OpenBLAS's ``getrs`` starts threads for two right sides or more, however small the system is. Where
other processes run, it waits for them a thousand times as long as it computes.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from llvmlite import ir

from scanopt_cli.loop.codegen.values import Array, Length, Number
from scanopt_cli.loop.codegen.writer import Writer

_LARGEST = 32


def is_small(writer: Writer, n: Length, columns: Length) -> Any:
    """Return whether a system of ``n`` equations for so many right sides is solved here."""
    return writer.both(writer.is_less(n, _LARGEST + 1), writer.is_less(1, columns))


def substitute(
    writer: Writer, factors: Array, pivots: Array, made: Array, n: Length, columns: Length
) -> None:
    """Solve equations in place, of one right side after the other.

    Parameters
    ----------
    factors
        ``(n, n)``: the factors of a matrix, as ``getrf`` makes them.
    pivots
        ``(n,)``: the rows that it exchanged, counted from 1.
    made
        ``(n, columns)``: the right sides.
    """

    def read(array: Array, *indices: Length) -> Number:
        return writer.load(writer.entry(array, indices), array.dtype)

    def write(number: Number, *indices: Length) -> None:
        writer.store(number, writer.entry(made, indices), made.dtype)

    def subtract(found: Number, first: Length, length: Length, j: Length, column: Length) -> None:
        """Subtract what a solution contributes to some other equations."""
        with writer.loop(length) as k:
            i = writer.add(first, k)
            part = writer.called(operator.mul, read(factors, i, j), found)
            write(writer.called(operator.sub, read(made, i, column), part), i, column)

    with writer.loop(columns) as column:
        with writer.loop(n) as i:
            from_one = writer.builder.load(writer.entry(pivots, [i]))
            pivot = writer.subtract(writer.builder.sext(from_one, ir.IntType(64)), 1)
            one, other = read(made, i, column), read(made, pivot, column)
            write(other, i, column)
            write(one, pivot, column)
        with writer.loop(n) as j:
            after = writer.add(j, 1)
            subtract(read(made, j, column), after, writer.subtract(n, after), j, column)
        with writer.loop(n) as k:
            j = writer.subtract(writer.subtract(n, 1), k)
            found = writer.called(np.true_divide, read(made, j, column), read(factors, j, j))
            write(found, j, column)
            subtract(found, 0, j, j, column)
