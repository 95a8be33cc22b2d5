"""Reductions of the steps of a trace, and what a loop carries for each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply
from pytensor.scalar import basic as ps
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.math import Max, Prod, Sum

from scanopt_cli.analysis.accesses.accesses import Access
from scanopt_cli.ir.slots import Slot, SlotKind
from scanopt_cli.pipeline.contract import PassContext


@dataclass(slots=True, eq=False)
class Reduction:
    """``node``, which reduces all steps of ``slot``, or their negatives, over time and ``axes``.

    ``axes`` are axes of a row.
    """

    slot: Slot
    node: Apply
    axes: tuple[int, ...]
    is_negated: bool

    @property
    def op(self) -> Any:
        """The reducing Op."""
        return self.node.op

    @property
    def inside(self) -> bool:
        """Whether each step reduces its row to a number.

        A maximum over a row costs more in the loop than the elementwise maximum of two rows.
        """
        is_row = self.slot.kind is not SlotKind.NIT_SOT and isinstance(self.op, Max)
        ndim: int = self.slot.inner_outputs[0].type.ndim
        return len(self.axes) == ndim and not (ndim and is_row)

    @property
    def dtype(self) -> str:
        """The dtype of the carry."""
        if isinstance(self.op, Max):
            return str(self.node.outputs[0].type.dtype)
        return str(self.op.acc_dtype)

    @property
    def start(self) -> Any:
        """The initial carry, which is the result over no steps."""
        kind = np.dtype(self.dtype)
        if not isinstance(self.op, Max):
            return np.asarray(int(isinstance(self.op, Prod)), dtype=kind)
        return np.asarray(-np.inf if kind.kind == "f" else np.iinfo(kind).min, dtype=kind)

    def of_row(self, row: Any) -> Any:
        """Return what a step contributes to the carry."""
        row = -row if self.is_negated else row
        if isinstance(self.op, Max):
            return Max(axis=self.axes)(row) if self.inside and self.axes else row
        row = row if row.type.dtype == self.dtype else row.astype(self.dtype)
        return self._sum(row, self.dtype) if self.inside and self.axes else row

    def combined(self, carry: Any, row: Any) -> Any:
        """Return the carry after a step that contributes ``row``."""
        if isinstance(self.op, Max):
            return pt.maximum(carry, row)
        return carry * row if isinstance(self.op, Prod) else carry + row

    def result(self, carry: Any) -> Any:
        """Return the result of the reduction, from the last carry."""
        if isinstance(self.op, Max):
            return Max(axis=self.axes)(carry) if self.axes and not self.inside else carry
        dtype = self.node.outputs[0].type.dtype
        if self.axes and not self.inside:
            return self._sum(carry, dtype)
        return carry if carry.type.dtype == dtype else carry.astype(dtype)

    def _sum(self, value: Any, dtype: str) -> Any:
        return type(self.op)(axis=self.axes, dtype=dtype, acc_dtype=self.dtype)(value)


def reductions_of(
    slot: Slot, accesses: Sequence[Access], context: PassContext
) -> Iterator[Reduction]:
    """Yield the reductions of all steps of ``slot``, if all other readers read only last rows."""
    found: list[Reduction] = []
    for access in accesses:
        if access.tail is not None:
            continue
        is_of_steps = access.is_plain and not access.n_initial
        reductions = list(_reduction(slot, access.node, context)) if is_of_steps else []
        if not reductions:
            return
        found += reductions
    yield from found


def _reduction(slot: Slot, node: Apply, context: PassContext) -> Iterator[Reduction]:
    """Yield ``node`` if it reduces over time, or, if it negates, the maxima that alone read it."""
    if isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, ps.Neg):
        readers = [reader for reader, _ in context.clients(node.outputs[0])]
        if all(isinstance(reader.op, Max) and _over_time(reader) for reader in readers):
            for reader in readers:
                yield Reduction(slot, reader, _row_axes(reader), is_negated=True)
    elif isinstance(node.op, Sum | Prod | Max) and _over_time(node):
        yield Reduction(slot, node, _row_axes(node), is_negated=False)


def _axes(node: Apply) -> tuple[int, ...]:
    axes = node.op.axis
    return tuple(range(node.inputs[0].type.ndim)) if axes is None else tuple(axes)


def _over_time(node: Apply) -> bool:
    return 0 in _axes(node)


def _row_axes(node: Apply) -> tuple[int, ...]:
    return tuple(axis - 1 for axis in _axes(node) if axis)
