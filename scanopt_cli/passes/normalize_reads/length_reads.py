"""Expresses variables that need only the length of a loop's output without the loop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.scalar import basic as ps
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.shape import Shape, Shape_i

from scanopt_cli.analysis.accesses.accesses import Access, accesses
from scanopt_cli.analysis.accesses.indices import read_index
from scanopt_cli.analysis.affine import AffineExpr
from scanopt_cli.analysis.count_variables import as_count, scalar_steps
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.ir.naming import Clients
from scanopt_cli.ir.slots import Slot, SlotView


def length_reads(
    view: SlotView, slot: Slot, lengths: Lengths, clients: Clients
) -> dict[Variable, Variable]:
    """Return replacements for variables that need only the length of an output or of its steps.

    The loop may not stop early, and the buffer of ``slot`` must hold every step.
    """
    steps = scalar_steps(view)
    if steps is None:
        return {}
    count = lengths.value_of(steps)
    found: dict[Variable, Variable] = {}
    for access in accesses(view, slot, clients):
        length = count + access.n_initial
        counted = as_count(length)
        if counted is not None:
            found.update(_read(access, counted, clients))
        found.update(_read_of_row(access, length, clients))
    return found


def _read(access: Access, length: Any, clients: Clients) -> Iterator[tuple[Variable, Variable]]:
    """Replacements for a reader that needs only the ``length`` of what it reads."""
    node, source, axis = access.node, access.source, access.axis
    is_shape = isinstance(node.op, Shape)
    if isinstance(node.op, Shape_i) and node.op.i == axis:
        yield node.outputs[0], length
    if not is_shape and not _is_fill(node, access.position):
        return
    result: Any = node.outputs[0]
    if is_shape:
        of_length = [
            reader.outputs[0]
            for reader, _ in clients(result)
            if _number(reader) in (axis, axis - source.type.ndim)
        ]
        for other in of_length:
            yield other, length
        if len(of_length) == len(clients(result)):
            return
    places = range(source.type.ndim)
    parts = [length if place == axis else Shape_i(place)(source) for place in places]
    made: Any = pt.stack(parts) if is_shape else pt.alloc(node.inputs[1], *parts)
    yield result, made


def _read_of_row(
    access: Access, length: AffineExpr, clients: Clients
) -> Iterator[tuple[Variable, Variable]]:
    """Replacement for ``ones_like(ys[-1])`` if the row is a scalar and in bounds: it is 1."""
    index = access.index
    row = None if index is None or index.rest else index.row
    if row is None or not length.is_constant:
        return
    if not -length.constant <= row < length.constant:
        return
    if access.result.type.ndim == 0:
        for reader, position in clients(access.result):
            if _is_fill(reader, position):
                yield reader.outputs[0], reader.inputs[1]


def _number(node: Apply) -> int | None:
    """The constant index at which ``node`` reads a vector; ``None`` if there is none."""
    index = read_index(node, 0)
    return None if index is None else index.row


def _is_fill(node: Apply, position: int) -> bool:
    """Whether ``node`` fills the shape of its input at ``position`` with one number."""
    if not isinstance(node.op, Elemwise) or not isinstance(node.op.scalar_op, ps.Second):
        return False
    source, value = node.inputs
    return position == 0 and source is not value and all(value.type.broadcastable)
