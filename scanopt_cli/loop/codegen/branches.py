"""Conditionals: the code of one of two branches runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numba
import numpy as np
from numba.core import cgutils
from pytensor.conditional.op import IfElse, LazyIfElse
from pytensor.graph.basic import Apply

from scanopt_cli.loop.codegen.graphs import GraphWriter, is_number_like, write_node
from scanopt_cli.loop.codegen.values import Array, Number, Other, Value, array_type, is_real

type _Branch = Callable[[], Sequence[Value]]


@write_node.register(LazyIfElse)
def _lazy(
    op: LazyIfElse, node: Apply, writer: GraphWriter, inputs: Sequence[Value]
) -> Sequence[Value] | None:
    condition, *rest = inputs
    return _chosen(
        writer,
        node,
        condition,
        lambda: writer.inner(op.true_branch.fgraph, rest),
        lambda: writer.inner(op.false_branch.fgraph, rest),
    )


@write_node.register(IfElse)
def _if_else(
    op: IfElse, node: Apply, writer: GraphWriter, inputs: Sequence[Value]
) -> Sequence[Value] | None:
    condition, *rest = inputs
    return _chosen(
        writer,
        node,
        condition,
        lambda: rest[: op.n_outs],
        lambda: rest[op.n_outs :],
        copies=(not op.as_view, True),
    )


def _chosen(
    writer: GraphWriter,
    node: Apply,
    condition: Value,
    true: _Branch,
    false: _Branch,
    *,
    copies: tuple[bool, bool] = (False, False),
) -> Sequence[Value] | None:
    """Write two branches, and return what stands for the outputs of the one that runs.

    ``copies`` says of each branch whether its outputs are copied, as others may have them.
    """
    if not isinstance(condition, Number):
        return None
    if not all(is_real(getattr(v.type, "dtype", "object")) for v in node.outputs):
        return None
    places = [_place(writer, output) for output in node.outputs]
    holds = writer.cast(condition, np.bool_).code
    with writer.builder.if_else(holds) as (then, otherwise):
        for block, branch, is_copied in zip((then, otherwise), (true, false), copies, strict=True):
            with block:
                made = branch()
                for output, place, value in zip(node.outputs, places, made, strict=True):
                    _keep(writer, output, place, value, is_copied=is_copied)
                writer.give_up_all(made)
    return [
        writer.from_numba(writer.builder.load(place), _kind(output), is_owned=True)
        for output, place in zip(node.outputs, places, strict=True)
    ]


def _kind(output: Any) -> Any:
    """Return Numba's type of an output, whichever branch it comes from."""
    if is_number_like(output):
        return numba.from_dtype(np.dtype(output.type.dtype))
    return array_type(output.type.dtype, output.type.ndim, is_contiguous=False)


def _place(writer: GraphWriter, output: Any) -> Any:
    return cgutils.alloca_once(writer.builder, writer.context.get_value_type(_kind(output)))


def _keep(writer: GraphWriter, output: Any, place: Any, value: Value, *, is_copied: bool) -> None:
    """Store an output of a branch, with a reference of its own."""
    assert not isinstance(value, Other)
    if isinstance(value, Number):
        value = writer.cast(value, output.type.dtype)
    if is_number_like(output):
        number = value
        if isinstance(value, Array):
            number = writer.load(writer.entry(value, [0] * value.ndim), value.dtype)
        writer.builder.store(number.code, place)  # type: ignore[union-attr]
        return
    is_shared = isinstance(value, Array) and (
        value.memory.buffer is not None or bool(value.memory.within)
    )
    kept = writer.with_reference(value, output.type.ndim, is_copied=is_copied or is_shared)
    writer.builder.store(writer.in_numba(kept), place)
