"""Elementwise kernels for Numba that write into given arrays, with the reductions of results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numba.core.compiler import Compiler
from numba.extending import register_jitable
from pytensor.graph.basic import Apply
from pytensor.link.numba.cache import compile_numba_function_src
from pytensor.link.numba.dispatch import basic
from pytensor.scalar.basic import identity as same
from pytensor.tensor.elemwise import Elemwise

from scanopt_cli.loop.axis_reductions import combined, identity
from scanopt_cli.loop.numba_math import IN_PLACE, VERSION
from scanopt_cli.loop.vector_math import WholeArrayFunction


@register_jitable
def row_at(index: Any, length: Any) -> Any:
    """Return the row at an index, which counts from the end if it is negative."""
    row = np.int64(index)
    if row < 0:
        row += length
    if row < 0 or row >= length:
        raise IndexError("index out of bounds")
    return row


@dataclass(frozen=True, slots=True)
class AxisSource:
    """Where a dimension of an array is read.

    Attributes
    ----------
    axis
        The axis of the operand that the dimension is, if it is one.
    start
        The source of the row, or of the first row of the axis; of the first of all, if ``None``.
    length
        The source of the length of the axis.
    indices
        Which rows the entries of the axis are, if they are picked.
    """

    axis: int | None
    start: str | None = None
    length: str = "1"
    indices: Array | None = None


@dataclass(frozen=True, slots=True)
class Array:
    """An array in the source of a step, or a part of it, with what is read of each dimension."""

    name: str
    parts: tuple[AxisSource, ...]

    def length(self, axis: int) -> str:
        """Return the source of a length; a dimension that the array does not have has one entry."""
        return next((part.length for part in self.parts if part.axis == axis), "1")


@dataclass(frozen=True, slots=True)
class Literal:
    """A number that is known."""

    value: Any


type Operand = Array | Literal | str
"""The name of a number stands for it."""


@dataclass(frozen=True, slots=True)
class Result:
    """The name of the array that a kernel writes, and the reduction of it, if it is one."""

    name: str
    reduction: Apply | None = None

    def reduced(self, ndim: int) -> Sequence[int]:
        """Return the axes that the result does not have."""
        if self.reduction is None:
            return ()
        op: Any = self.reduction.op
        return tuple(axis % ndim for axis in op.axis)


class _KernelCompiler(Compiler):
    """Numba's compiler, for functions whose written arrays are no other argument (noalias)."""

    def __init__(self, *arguments: Any) -> None:
        *others, flags, variables = arguments
        flags = flags.copy()
        flags.noalias = True
        changed = [*others, flags, variables]
        super().__init__(*changed)


type Kernel = tuple[Any, str | None, Sequence[str]]
"""A function for Numba, which does not check indices; what it is cached by, ``None`` if it is not;
and the sources of its arguments."""


@dataclass(slots=True)
class _Source:
    """The source of a kernel that is being written.

    Attributes
    ----------
    lengths
        The sources of the lengths of the loops over the entries.
    """

    lengths: Sequence[str]
    arguments: dict[str, str] = field(default_factory=dict)
    names: dict[str, Any] = field(default_factory=dict)
    keys: list[Any] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    bounds: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Make arguments of the lengths that are not known."""
        for axis, length in enumerate(self.lengths):
            if length.isdigit():
                self.bounds.append(length)
            else:
                self.arguments[f"n{axis}"] = length
                self.bounds.append(f"n{axis}")

    def loops(self, axes: Sequence[int], depth: int = 1) -> None:
        """Begin loops over some axes."""
        for i, axis in enumerate(axes):
            self.line(depth + i, f"for k{axis} in range({self.bounds[axis]}):")

    def line(self, depth: int, text: str) -> None:
        """Add a line."""
        self.lines.append("    " * depth + text)

    def value(self, name: str, operand: Operand, shape: Sequence[int | None]) -> str:
        """Return the source of an entry of an operand, of which a static shape is known."""
        if isinstance(operand, Literal):
            self.names[name] = operand.value
            self.keys.append(basic.cache_key_for_constant(operand.value))
            return name
        if isinstance(operand, str):
            self.arguments[name] = operand
            return name
        return self._entry(name, operand, ["0" if n == 1 else f"k{i}" for i, n in enumerate(shape)])

    def _entry(self, name: str, array: Array, entries: Sequence[str]) -> str:
        self.arguments[name] = array.name
        places = list(self.places(name, array, entries))
        return f"{name}[{', '.join(places) or '()'}]"

    def places(self, name: str, array: Array, entries: Sequence[str]) -> Iterator[str]:
        """Yield the sources of the indices of an entry, by dimension."""
        for k, part in enumerate(array.parts):
            entry = None if part.axis is None else entries[part.axis]
            if part.indices is not None and entry is not None:
                index = self._entry(f"{name}_{k}", part.indices, [entry])
                yield f"row_at({index}, {name}.shape[{k}])"
                continue
            if part.start is None:
                yield entry or "0"
                continue
            self.arguments[f"{name}_{k}"] = part.start
            yield f"{name}_{k}" if entry is None else f"{name}_{k} + {entry}"

    def compiled(self, key: str | None) -> Kernel:
        """Return the kernel."""
        text = f"def kernel({', '.join(self.arguments)}):\n" + "\n".join(self.lines) + "\n"
        names = {**vars(basic), "row_at": row_at, **self.names}
        made = compile_numba_function_src(text, "kernel", names)
        compiled = basic.numba_njit(made, boundscheck=False, pipeline_class=_KernelCompiler)
        whole_key = key and f"({text}, {key}, {self.keys}, {VERSION})"
        return compiled, whole_key, list(self.arguments.values())


def kernel(
    node: Apply,
    results: Sequence[Result],
    operands: Sequence[Operand],
    lengths: Sequence[str],
    memo: Any,
) -> Kernel:
    """Return the kernel of a node, given its results, its operands and the lengths of its loops.

    The node is elementwise, of which some results may be reduced; or it only reads its operand.
    ``memo`` is what PyTensor's functions for Ops remember in one compilation.
    """
    op: Any = node.op if isinstance(node.op, Elemwise) else Elemwise(same)
    source = _Source(lengths)
    axes = range(len(lengths))
    for i, result in enumerate(results):
        source.arguments[f"out_{i}"] = result.name
    shapes = [v.type.shape for v in node.inputs] if op is node.op else [(None,) * len(lengths)]
    parts = zip(operands, shapes, strict=True)
    # What is overwritten is read by the same name: no kernel has an array by two.
    names = {result.name: f"out_{i}" for i, result in enumerate(results)}
    values = [
        source.value(
            names.get(operand.name, f"a{i}") if isinstance(operand, Array) else f"a{i}",
            operand,
            shape,
        )
        for i, (operand, shape) in enumerate(parts)
    ]
    scalar_op, whole = op.scalar_op, None
    if isinstance(scalar_op, WholeArrayFunction):
        whole, scalar_op = scalar_op.function, scalar_op.argument()
    key: str | None = "same"
    call = values[0]
    if scalar_op not in (None, same):
        function, key = basic.numba_funcify_and_cache_key(
            scalar_op, node=op.make_scalar_node(*node.inputs), ofg_memo=memo
        )
        source.names["function"] = function
        call = f"function({', '.join(values)})"
    _write(source, axes, results, call)
    if whole is not None:
        source.names["whole"] = IN_PLACE[whole]
        source.line(1, "whole(out_0)")
        key = key and f"{whole} of {key}"
    return source.compiled(key)


def _write(source: _Source, axes: Sequence[int], results: Sequence[Result], call: str) -> None:
    """Write the loops that compute the results, each an entry of what ``call`` returns."""
    ndim = len(axes)
    totals = {}
    for i, result in enumerate(results):
        if result.reduction is None:
            continue
        source.names[f"none_{i}"] = identity(result.reduction)
        reduced = result.reduced(ndim)
        kept = [axis for axis in axes if axis not in reduced]
        if list(reduced) == list(axes[len(kept) :]):
            totals[i] = len(kept)
            continue
        source.loops(kept)
        source.line(1 + len(kept), f"out_{i}[{_at(kept)}] = none_{i}")
    values = [f"v{i}" for i in range(len(results))]
    for axis in axes:
        for i, first in totals.items():
            if first == axis:
                source.line(1 + axis, f"t{i} = none_{i}")
        source.loops([axis], 1 + axis)
    source.line(1 + ndim, f"{', '.join(values)} = {call}")
    for i, result in enumerate(results):
        if result.reduction is None:
            source.line(1 + ndim, f"out_{i}[{_at(axes)}] = v{i}")
            continue
        kept = [axis for axis in axes if axis not in result.reduced(ndim)]
        target = f"t{i}" if i in totals else f"out_{i}[{_at(kept)}]"
        source.line(1 + ndim, f"{target} = {combined(result.reduction, target, f'v{i}')}")
    for i, first in sorted(totals.items(), key=lambda item: -item[1]):
        source.line(1 + first, f"out_{i}[{_at(axes[:first])}] = t{i}")


def _at(axes: Sequence[int]) -> str:
    return ", ".join(f"k{axis}" for axis in axes)


def writing_kernel(
    result: str,
    before: Array | None,
    target: Array,
    value: Operand,
    shape: Sequence[int | None],
    *,
    lengths: Sequence[str],
    n_entries: Sequence[str],
    adds: bool,
) -> Kernel:
    """Return the kernel that writes values into a part of an array, or of a copy of it.

    Parameters
    ----------
    result
        The name of the array, or of the copy.
    before
        The array that is copied, if one is.
    target
        The part that is written.
    value
        What is written, of static ``shape``.
    lengths
        The lengths of the array.
    n_entries
        The lengths of the part.
    adds
        Whether values are added to what is there.
    """
    source = _Source(lengths)
    axes = range(len(lengths))
    source.arguments["out_0"] = result
    if before is not None:
        old = source.value("a0", before, (None,) * len(lengths))
        source.loops(axes)
        source.line(1 + len(lengths), f"out_0[{_at(axes)}] = {old}")
    for axis, length in enumerate(n_entries):
        bound = length
        if not length.isdigit():
            bound = f"m{axis}"
            source.arguments[bound] = length
        source.line(1 + axis, f"for k{axis} in range({bound}):")
    new = source.value("a1", value, shape)
    places = list(source.places("out_0", target, [f"k{i}" for i in range(len(n_entries))]))
    source.line(1 + len(n_entries), f"out_0[{', '.join(places)}] {'+=' if adds else '='} {new}")
    return source.compiled("write")
