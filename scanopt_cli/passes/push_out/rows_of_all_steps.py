"""Computes elementwise arithmetic of rows for all steps at once, before the loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytensor.tensor as pt
from pytensor.compile.builders import infer_shape
from pytensor.conditional.op import ifelse
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors, io_toposort
from pytensor.tensor.elemwise import DimShuffle, Elemwise

from scanopt_cli.analysis.dependence import keeps_every_step
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.loop_lengths import is_truncated
from scanopt_cli.analysis.step_rows import StepRow, add_rows, invariant_inputs, step_rows
from scanopt_cli.ir.declared_lengths import declaring_as
from scanopt_cli.ir.levels import always_computed
from scanopt_cli.ir.slots import SlotKind, SlotView
from scanopt_cli.loop.costs import is_costly
from scanopt_cli.passes.push_out.hoisting import is_total
from scanopt_cli.remarks import Reason, Why, because


@dataclass(frozen=True, slots=True)
class RowMaps:
    """The elementwise arithmetic of rows and invariants in the body of an unfrozen loop.

    Attributes
    ----------
    rows
        The rows that a step reads.
    nodes
        What is computed of at least one of them, in order.
    is_all
        Whether a loop without states does nothing else: a step returns rows, and what is computed
        of them.
    """

    rows: Mapping[Variable, StepRow]
    nodes: Sequence[Apply]
    is_all: bool

    @property
    def are_costly(self) -> bool:
        """Whether a function such as exp is among them."""
        return any(is_costly(node.op) for node in self.nodes)


def row_maps(view: SlotView) -> RowMaps:
    """Return the elementwise arithmetic of rows in the body of an unfrozen loop.

    What may raise an error, as a division by 0, is among it only if each step computes it of its
    row. Of invariants it would raise even if there is no step.
    """
    outputs = view.inner_outputs()
    rows = step_rows(view)
    invariant, varying = set(invariant_inputs(view)), set(rows)
    always = set() if view.is_while else always_computed(outputs)
    found = []
    for node in io_toposort([], outputs):
        if node.outputs[0] in rows or not isinstance(node.op, Elemwise | DimShuffle):
            continue
        if all(v in invariant or v in varying or isinstance(v, Constant) for v in node.inputs):
            if varying.isdisjoint(node.inputs):
                if is_total(node):
                    invariant.update(node.outputs)
            elif node in always or is_total(node):
                varying.update(node.outputs)
                found.append(node)
    has_states = bool(view.of_kind(SlotKind.STATE))
    return RowMaps(rows, found, is_all=varying.issuperset(outputs) and not has_states)


def compute_before(view: SlotView, maps: RowMaps) -> dict[Variable, Variable] | Reason | None:
    """Compute the arithmetic of rows before the loop, but for outer products.

    Returns replacements for all outputs, or the reason against it, or ``None`` if there is nothing
    to move.
    """
    lengths = Lengths(view.n_steps)
    outputs = view.inner_outputs()
    nodes = list(maps.nodes) if maps.is_all else _without_products(maps)
    read = _read_elsewhere(nodes, outputs)
    if not (maps.is_all or read):
        return None
    needed = set(ancestors(outputs if maps.is_all else read))
    rows = [found for variable, found in maps.rows.items() if variable in needed]
    reason = _unfit(view, maps, rows, lengths)
    if reason is not None:
        return because(reason)
    whole: dict[Variable, Any] = {row.inner: row.at_all_steps(view, lengths) for row in rows}
    known = invariant_inputs(view)
    for node in io_toposort([*whole, *known], outputs if maps.is_all else read):
        inputs = [whole.get(v, known.get(v, v)) for v in node.inputs]
        if whole.keys().isdisjoint(node.inputs):
            known.update(zip(node.outputs, node.op.make_node(*inputs).outputs, strict=True))
        else:
            whole[node.outputs[0]] = at_all_steps(node, inputs)
    if maps.is_all:
        return _instead_of_loop(view, whole)
    inner = {v: add_rows(view, whole[v], v.type) for v in read}
    view.set_inner_outputs(graph_replace(outputs, inner, strict=False))
    return view.rebuild()


def _without_products(maps: RowMaps) -> list[Apply]:
    """Return the nodes without outer products, and without what is computed of these.

    The rows of all products take far more memory than their factors: computed before the loop, they
    are written to memory and read again, which takes longer than to multiply. What a slow function
    such as exp is computed of is no such product: it pays to compute that for all steps at once.
    """
    slow: set[Variable] = set()
    for node in reversed(maps.nodes):
        if is_costly(node.op) or not slow.isdisjoint(node.outputs):
            slow.update(node.inputs)
    varying = set(maps.rows).union(v for node in maps.nodes for v in node.outputs)
    kept: list[Apply] = []
    held: set[Variable] = set()
    for node in maps.nodes:
        is_fast = slow.isdisjoint(node.outputs) and not is_costly(node.op)
        if not held.isdisjoint(node.inputs) or (is_fast and _is_outer_product(node, varying)):
            held.update(node.outputs)
        else:
            kept.append(node)
    return kept


def _is_outer_product(node: Apply, varying: set[Variable]) -> bool:
    """Whether a node makes an array that is larger than each of the rows it is computed of."""
    made = node.outputs[0].type
    return (
        isinstance(node.op, Elemwise)
        and made.ndim > 1
        and all(v.type.broadcastable != made.broadcastable for v in node.inputs if v in varying)
    )


def _read_elsewhere(nodes: Sequence[Apply], outputs: Sequence[Variable]) -> list[Variable]:
    """Return what other nodes, or the loop, read of what ``nodes`` compute.

    A row whose axes are moved alone is not computed; the step can move them.
    """
    moved = set(nodes)
    computed: set[Variable] = set()
    for node in nodes:
        if isinstance(node.op, Elemwise) or not computed.isdisjoint(node.inputs):
            computed.update(node.outputs)
    everywhere = [v for node in io_toposort([], outputs) if node not in moved for v in node.inputs]
    return [v for v in dict.fromkeys((*everywhere, *outputs)) if v in computed and v.owner in moved]


def _unfit(view: SlotView, maps: RowMaps, rows: Sequence[StepRow], lengths: Lengths) -> Why | None:
    """Return why rows cannot be computed with before the loop, ``None`` if they can."""
    if not all(row.keeps_shape(lengths) for row in rows):
        return Why.TRACE_OF_NO_STEPS
    if maps.is_all:
        if is_truncated(view, lengths):
            return Why.TRUNCATION_LOST
        if not keeps_every_step(view):
            return Why.LOOP_EMPTIES
        return None if all(row.is_there_alone(lengths) for row in rows) else Why.SEQUENCE_LENGTH
    return unfit_rows(rows, lengths)


def unfit_rows(rows: Sequence[StepRow], lengths: Lengths) -> Why | None:
    """Return why a loop cannot read what is computed of all its rows, ``None`` if it can."""
    if all(row.is_whole(lengths) for row in rows):
        return None
    if any(row.slot.outer_input.type.shape[0] == 1 for row in rows):
        return Why.ONE_ROW
    # A sequence that is too short is an error of a Scan as before; an index is one of its step.
    is_scan = all(row.slot.kind is SlotKind.SEQ for row in rows)
    return None if is_scan or all(row.is_there(lengths) for row in rows) else Why.SEQUENCE_LENGTH


def at_all_steps(node: Apply, inputs: Sequence[Any]) -> Any:
    """Return what a node computes in all steps, from its inputs at all steps; one value a row."""
    if isinstance(node.op, DimShuffle):
        order = [axis if axis == "x" else axis + 1 for axis in node.op.new_order]
        return inputs[0].dimshuffle(0, *order)
    return node.op(*inputs)


def if_there_is_a_step(made: Sequence[Any], n_steps: Any) -> list[Any]:
    """Return what is computed only if a loop runs a step, and zeros of its shape otherwise."""
    zeros = [
        value.type.filter_variable(pt.zeros(list(shape), dtype=value.type.dtype))
        for value, shape in zip(made, infer_shape(made, (), ()), strict=True)
    ]
    chosen: Any = ifelse(pt.gt(n_steps, 0), list(made), zeros)
    return list(chosen)


def _instead_of_loop(view: SlotView, whole: Mapping[Variable, Any]) -> dict[Variable, Variable]:
    """Return what replaces the outputs of a loop that computes nothing but maps of rows."""
    found: dict[Variable, Variable] = {}
    for slot in view.outputs():
        made: Any = whole[slot.inner_outputs[0]]
        if slot.n_initial:
            buffer: Any = slot.outer_input
            made = pt.set_subtensor(buffer[slot.n_initial :], made)
        found[slot.output] = declaring_as(made, slot.output)
    return found | dict.fromkeys(view.counts, view.n_steps)
