"""Computes elementwise arithmetic of sequences for all steps at once, before the loop."""

from __future__ import annotations

from typing import Any

from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.scan.rewriting.push_out import scan_push_out_seq
from pytensor.tensor.elemwise import DimShuffle, Elemwise

from scanopt_cli.analysis.dependence import (
    is_elementwise_map,
    is_replaceable_map,
    keeps_every_step,
)
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.ir.declared_lengths import declaring_as
from scanopt_cli.ir.scan_view import ScanView, is_loop
from scanopt_cli.ir.slots import SlotKind
from scanopt_cli.ir.written import keep
from scanopt_cli.loop.costs import is_costly
from scanopt_cli.passes.push_out.outer_products import hold_products, release_products
from scanopt_cli.remarks import Reason, Why, because


def has_costly_maps(view: ScanView) -> bool:
    """Whether a step computes a function such as exp of sequences, and of no state."""
    free = {slot.inner_inputs[0] for slot in view.of_kind(SlotKind.SEQ)}
    known = free | {slot.inner_inputs[0] for slot in view.of_kind(SlotKind.NON_SEQ)}
    for node in view.op.fgraph.toposort():
        if not isinstance(node.op, Elemwise | DimShuffle):
            continue
        if all(v in known or isinstance(v, Constant) for v in node.inputs):
            known.update(node.outputs)
            if not free.isdisjoint(node.inputs):
                free.update(node.outputs)
                if is_costly(node.op):
                    return True
    return False


def push_out_sequences(view: ScanView) -> dict[Variable, Variable] | Reason | None:
    """Compute elementwise arithmetic of sequences before the loop, but for outer products.

    Returns replacements for all outputs, or the reason against it, or ``None`` if there is nothing
    to move.
    """
    held = None if is_elementwise_map(view) else hold_products(view)
    if held is None:
        return _with_whole_sequences(view)
    pushed = _with_whole_sequences(ScanView.of(node_of(held)))
    if not isinstance(pushed, dict):
        return pushed
    released = release_products(ScanView.of(node_of(pushed)))
    return {old: released[pushed[new]] for old, new in held.items()}


def _with_whole_sequences(view: ScanView) -> dict[Variable, Variable] | Reason | None:
    """Let PyTensor compute with whole sequences, which have to be equally long."""
    copied = _copied_rows(view)
    if copied is not None:
        return copied
    pushed = _pushed_out(view.node)
    if pushed is None:
        return None
    lengths = Lengths(view.n_steps)
    sequences = view.of_kind(SlotKind.SEQ)
    is_map = is_elementwise_map(view)
    if is_map and not is_replaceable_map(view):
        return because(Why.LOOP_EMPTIES)
    if all(lengths.length_of(slot.outer_input) == lengths.steps for slot in sequences):
        return pushed
    if is_map:
        return because(Why.SEQUENCE_LENGTH)
    if any(slot.outer_input.type.shape[0] == 1 for slot in sequences):
        return because(Why.ONE_ROW)
    cut = ScanView.of(view.node)
    for slot in cut.of_kind(SlotKind.SEQ):
        whole: Any = slot.outer_input
        slot.outer_input = whole[: view.n_steps]
    replaced = cut.rebuild()
    pushed = _pushed_out(node_of(replaced))
    return None if pushed is None else {old: pushed[new] for old, new in replaced.items()}


def _copied_rows(view: ScanView) -> dict[Variable, Variable] | None:
    """Return the sequences whose rows a loop copies, if it does nothing else."""
    lengths = Lengths(view.n_steps)
    sources = {
        slot.inner_inputs[0]: slot.outer_input
        for slot in view.of_kind(SlotKind.SEQ)
        if lengths.length_of(slot.outer_input) == lengths.steps
    }
    slots = view.outputs()
    if not all(s.kind is SlotKind.NIT_SOT and s.inner_outputs[0] in sources for s in slots):
        return None
    if not keeps_every_step(view):
        return None
    wholes = {slot.output: sources[slot.inner_outputs[0]] for slot in slots}
    return {old: declaring_as(whole, old) for old, whole in wholes.items()}


def _pushed_out(node: Apply) -> dict[Variable, Variable] | None:
    """Return the replacements of PyTensor's ``scan_push_out_seq``, ``None`` if it makes none."""
    found: Any = scan_push_out_seq.transform(None, node)
    if not found:
        return None
    replaced = {old: new for old, new in found.items() if old != "remove"}
    # What is there already is read by the loop: an output may be one of its sequences.
    for made in {new.owner for new in replaced.values()} - {v.owner for v in node.inputs}:
        if made is not None and is_loop(made):
            keep(node, made.op)
    return replaced


def node_of(replaced: dict[Variable, Variable]) -> Apply:
    """Return the one node that computes the replacements."""
    nodes: set[Apply] = {new.owner for new in replaced.values() if new.owner is not None}
    (node,) = nodes
    return node
