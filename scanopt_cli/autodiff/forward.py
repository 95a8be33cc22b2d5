"""Forward mode: the values of a graph together with their tangents, in one or more directions.

PyTensor's own forward mode differentiates the body of a Scan by its own rules only, so it fails at
an Op in a body that has no pushforward. It carries tangents of integers and of variables that
depend on no differentiated input. And it keeps the original loop beside the loop with tangents.
Here the loop with tangents replaces the original loop, all directions share it, and only variables
that depend on a differentiated input have tangents.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytensor.tensor as pt
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.traversal import toposort
from pytensor.scalar.basic import Composite
from pytensor.scan.op import Scan
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import Elemwise

from scanopt_cli.autodiff.activity import is_float, useful, varied
from scanopt_cli.autodiff.pushforward_rules import (
    Pushed,
    TangentError,
    Tangents,
    fitted,
    own_or_transposed,
    pushforward,
    transposed,
)
from scanopt_cli.ir.graph import substituted
from scanopt_cli.ir.inner_graphs import TANGENTS
from scanopt_cli.ir.naming import titles
from scanopt_cli.ir.scan_view import view_of
from scanopt_cli.ir.slots import HasSlots, Slot, SlotKind, SlotView


@dataclass(frozen=True, slots=True)
class Jvp(Pushed):
    """The outputs of a graph and their tangents; ``nodes`` maps replaced nodes to new ones."""

    nodes: Mapping[Apply, Apply]


def jvp(outputs: Sequence[Variable], directions: Sequence[Mapping[Variable, Variable]]) -> Jvp:
    """Return ``outputs`` and their tangents in each of ``directions``.

    A direction maps some variables without an owner to their tangents; the tangents of the others
    are zero.

    Raises
    ------
    TangentError
        If an Op that a tangent reaches has no pushforward.
    """
    wanted = useful(outputs)
    values: dict[Variable, Variable] = {}
    tangent_maps = [dict(direction) for direction in directions]
    nodes: dict[Apply, Apply] = {}
    for node in toposort(outputs):
        inputs = [values.get(variable, variable) for variable in node.inputs]
        rebuilt = node.clone_with_new_inputs(inputs) if inputs != node.inputs else node
        tangents = [[tangent_of.get(v) for v in node.inputs] for tangent_of in tangent_maps]
        found = Pushed(rebuilt.outputs, ())
        has_tangent = any(tangent is not None for row in tangents for tangent in row)
        if has_tangent and not wanted.isdisjoint(node.outputs):
            try:
                found = pushforward(node.op, rebuilt, tangents)
            except TangentError as error:
                if error.node is rebuilt:
                    raise TangentError(node, error.why) from error
                raise error.inside(titles(outputs)[node]) from error
        for tangent_of, row in zip(tangent_maps, found.tangents, strict=False):
            for old, new, tangent in zip(node.outputs, found.outputs, row, strict=True):
                if tangent is not None and old in wanted:
                    tangent_of[old] = fitted(tangent, new)
        if found.outputs is not node.outputs:
            values.update(zip(node.outputs, found.outputs, strict=True))
            made = found.outputs[0].owner
            if made is not None:
                nodes[node] = made
    return Jvp(
        [values.get(output, output) for output in outputs],
        [[tangent_of.get(output) for output in outputs] for tangent_of in tangent_maps],
        nodes,
    )


@pushforward.register(Scan)
@pushforward.register(HasSlots)
def _loop(op: Any, node: Apply, directions: Sequence[Tangents]) -> Pushed:
    """Build one loop for the values and the tangents of all directions.

    For each direction, a slot with a tangent gets a second slot of the same kind and taps for it.
    """
    view = view_of(node)
    view.unfreeze()
    given = [dict(zip(node.inputs, tangents, strict=True)) for tangents in directions]
    active = [_slots_with_tangents(view, node, known) for known in given]
    inside = [
        {v: v.type() for slot in slots for v in slot.inner_inputs if is_float(v)}
        for slots in active
    ]
    body = jvp(view.inner_outputs(), inside)
    computed = [dict(zip(view.inner_outputs(), row, strict=True)) for row in body.tangents]
    places = dict(zip(view.inner_outputs(), body.outputs, strict=True))
    marks: list[dict[Variable, Variable]] = []
    added: list[Slot] = []
    for known, slots, seeds, tangents in zip(given, active, inside, computed, strict=True):
        marks.append({})
        for slot in slots:
            own: dict[Any, Variable] = {v: v.type() for v in slot.outer_outputs}
            marks[-1].update(own)
            has_no_input = slot.kind in (SlotKind.NIT_SOT, SlotKind.TRACED)
            outer = slot.outer_input
            added.append(
                replace(
                    slot,
                    inner_inputs=[seeds[variable] for variable in slot.inner_inputs],
                    inner_outputs=[fitted(tangents[v], places[v]) for v in slot.inner_outputs],
                    outer_input=outer if has_no_input else fitted(known.get(outer), outer),
                    outer_output=own.get(slot.outer_output),
                    last=own.get(slot.last),
                )
            )
    view.set_inner_outputs(list(body.outputs))
    view.slots = [*view.slots, *added]
    view.new_name = f"{TANGENTS}{op.name}" if op.name else None
    made = view.rebuild()
    return Pushed(
        [made[output] for output in node.outputs],
        [
            [made[mark[output]] if output in mark else None for output in node.outputs]
            for mark in marks
        ],
    )


def _slots_with_tangents(
    view: SlotView, node: Apply, known: Mapping[Variable, Variable | None]
) -> list[Slot]:
    """The slots that have a tangent if ``known`` holds those of outer inputs, in order.

    Iterates to a fixpoint: a state carries its tangent to the next step.
    """
    slots = [slot for slot in view.slots if known.get(slot.outer_input) is not None]
    slots = [slot for slot in slots if slot.kind is not SlotKind.NIT_SOT]
    for _ in range(len(view.slots) + 1):
        moved = varied(view.inner_outputs(), [v for slot in slots for v in slot.inner_inputs])
        more = [
            slot
            for slot in view.slots
            if slot in slots or any(v in moved for v in slot.inner_outputs)
        ]
        if len(more) == len(slots):
            break
        slots = more
    if any(slot.kind is SlotKind.UNTRACED for slot in slots):
        raise TangentError(node, "one of its states keeps no trace")
    return slots


@pushforward.register(OpFromGraph)
def _op_from_graph(op: OpFromGraph, node: Apply, directions: Sequence[Tangents]) -> Pushed:
    """Build one OpFromGraph for the values and all tangents.

    An Op that overrides its pushforward or its pullback keeps that derivative.
    """
    if op.pushforward_overrides is not None:
        return pushforward.dispatch(object)(op, node, directions)
    if op.pullback_overrides is not None:
        return Pushed(node.outputs, [transposed(node, tangents) for tangents in directions])

    def joint(outputs: Sequence[Variable], values: Mapping[Variable, Variable]) -> Any:
        both = OpFromGraph(
            list(values),
            list(outputs),
            inline=op.is_inline,
            name=f"{op.name}_rop" if op.name else None,
            on_unused_input="ignore",
        )
        return both(*values.values(), return_list=True)

    body = op.fgraph.unfreeze()
    return _applied(body.outputs, body.inputs, node, directions, joint)


@pushforward.register(Elemwise)
def _elemwise(op: Elemwise, node: Apply, directions: Sequence[Tangents]) -> Pushed:
    """Apply PyTensor's rule, or for a Composite the rules of its parts.

    Composites come from fusion, and PyTensor builds a cube as one. PyTensor would multiply a
    derivative by a zero tangent: where that is NaN (of a power by its constant exponent, at a
    negative base), the result would be NaN.
    """
    if not isinstance(op.scalar_op, Composite):
        found = [own_or_transposed(node, tangents, with_zeros=False) for tangents in directions]
        return Pushed(node.outputs, found)
    inputs = [variable.type() for variable in node.inputs]
    return _applied(_unfused(op.scalar_op, inputs), inputs, node, directions, substituted)


def _unfused(composite: Composite, inputs: Sequence[Variable]) -> list[Variable]:
    """The outputs of ``composite`` for ``inputs``, with an Elemwise for each of its parts."""
    body = composite.fgraph
    made: dict[Variable, Any] = dict(zip(body.inputs, inputs, strict=True))
    for node in body.toposort():
        parts = [
            made[v] if v in made else pt.constant(v.data, dtype=v.type.dtype)  # type: ignore[attr-defined]
            for v in node.inputs
        ]
        parts_made: Any = Elemwise(node.op)(*parts, return_list=True)
        made.update(zip(node.outputs, parts_made, strict=True))
    return [made[output] for output in body.outputs]


@pushforward.register(Blockwise)
def _blockwise(op: Blockwise, node: Apply, directions: Sequence[Tangents]) -> Pushed:
    """Vectorize the rule of the core Op over the batch dimensions."""
    batch = op.batch_ndim(node)
    core: list[Any] = [v.type.clone(shape=v.type.shape[batch:])() for v in node.inputs]
    applied = op.core_op.make_node(*core)
    try:
        return _applied(applied.outputs, core, node, directions, vectorize_graph)
    except TangentError as error:
        # `applied` is not in the graph: report `node` in its place, and drop its title.
        if error.node is applied:
            raise TangentError(node, error.why) from error
        raise TangentError(error.node, error.why, error.path[1:]) from error


def _applied(
    outputs: Sequence[Variable],
    inputs: Sequence[Variable],
    node: Apply,
    directions: Sequence[Tangents],
    substitute: Callable[..., Any],
) -> Pushed:
    """Push through ``outputs``, which are functions of the placeholders ``inputs``.

    In the result, ``substitute`` replaces the placeholders and their tangents by the inputs of
    ``node`` and theirs.
    """
    inside = [
        {v: v.type() for v, t in zip(inputs, tangents, strict=True) if t is not None}
        for tangents in directions
    ]
    pushed = jvp(outputs, inside)
    values = dict(zip(inputs, node.inputs, strict=True))
    for known, tangents in zip(inside, directions, strict=True):
        pairs = zip(inputs, tangents, strict=True)
        values.update({known[v]: t for v, t in pairs if t is not None})
    wanted = [t for row in pushed.tangents for t in row if t is not None]
    made = iter(substitute([*pushed.outputs, *wanted], values))
    return Pushed(
        [next(made) for _ in pushed.outputs],
        [[None if t is None else next(made) for t in row] for row in pushed.tangents],
    )
