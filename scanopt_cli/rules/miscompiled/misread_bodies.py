"""Loops that PyTensor moves computations out of, and changes doing so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.scalar.basic import Add
from pytensor.scan.rewriting.push_out import (
    scan_push_out_add,
    scan_push_out_non_seq,
    scan_push_out_seq,
)
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.math import Dot
from pytensor.tensor.shape import Shape, Shape_i

from scanopt_cli.analysis.accesses.accesses import accesses
from scanopt_cli.analysis.dependence import dependent_nodes, varying_inputs
from scanopt_cli.analysis.named_loops import NamedLoop
from scanopt_cli.ir.scan_view import ScanView, is_loop, scan_op
from scanopt_cli.ir.slots import TRACED, Slot, SlotKind
from scanopt_cli.rules.miscompiled.upstream_answers import Misread, RewriteError, asked


def dropped_terms(loop: NamedLoop) -> Iterator[Misread]:
    """Yield the sums of three terms of which ``scan_push_out_add`` drops one."""
    for slot in loop.view.of_kind(SlotKind.SIT_SOT):
        node = slot.inner_outputs[0].owner
        is_sum = node is not None and isinstance(node.op, Elemwise)
        if not is_sum or not isinstance(node.op.scalar_op, Add) or len(node.inputs) < 3:
            continue
        products = [v for v in node.inputs if v.owner is not None and isinstance(v.owner.op, Dot)]
        if not products or slot.inner_inputs[0] not in node.inputs:
            continue
        name = loop.names[slot]
        try:
            replaced = asked(scan_push_out_add, loop.graph, loop.view.node, changes_graph=True)
        except RewriteError:
            text = f"compiling fails: an assertion of scan_push_out_add, about the sum `{name}`"
            yield Misread(text, (slot,))
            continue
        readers = [c.outputs[0] for c, _ in loop.graph.clients[slot.output] if c.outputs]
        if any(reader in replaced for reader in readers):
            yield Misread(
                f"compiled, the last row of the sum `{name}` lacks a term: scan_push_out_add "
                "keeps two",
                (slot,),
            )


def lost_starts(loop: NamedLoop) -> Iterator[Misread]:
    """Yield the invariant states whose initial rows ``scan_push_out_non_seq`` drops.

    And while loops of invariants, whose traces it fills to the end.
    """
    view = loop.view
    assert isinstance(view, ScanView)
    slots = view.of_kind(*TRACED)
    states = [slot for slot in slots if slot.n_initial]
    if not (states or view.is_while) or len(slots) < len(view.outputs()):
        return
    is_left = dependent_nodes(varying_inputs(view), view.inner_outputs())
    replaced = _pushed_out_of_read(loop) if is_left else _pushed_out(scan_push_out_non_seq, loop)
    if view.is_while:
        # If it stopped at once, or before the last step, all steps are there nevertheless.
        found = [s for s in slots if s.output in replaced and _reads_all(loop, s)]
        if found:
            text = (
                f"compiled, {loop.quoted(found)} has all steps though the loop stops: "
                "scan_push_out_non_seq takes it for one that does not"
            )
            yield Misread(text, tuple(found))
        return
    found = [slot for slot in states if slot.output in replaced and _reads_all(loop, slot)]
    if found:
        text = (
            f"compiled, {loop.quoted(found)} has too few rows: scan_push_out_non_seq drops the "
            "initial ones"
        )
        yield Misread(text, tuple(found))


def mixed_rows(loop: NamedLoop) -> Iterator[Misread]:
    """Yield loops whose states ``scan_push_out_seq`` writes behind each other's initial rows."""
    found = loop.view.of_kind(SlotKind.MIT_SOT)
    if len({slot.n_initial for slot in found}) < 2:
        return
    replaced = _pushed_out(scan_push_out_seq, loop)
    wrong = [slot for slot in found if slot.output in replaced]
    if len({slot.n_initial for slot in wrong}) > 1:
        text = (
            f"compiled, {loop.quoted(wrong)} fail, or their rows are elsewhere: scan_push_out_seq "
            "starts all of them behind the longest initial rows"
        )
        yield Misread(text, tuple(wrong))


def _pushed_out(rewriter: Any, loop: NamedLoop) -> dict[Variable, Variable]:
    """Return the outputs of a loop that a rewrite replaces by what no loop computes."""
    try:
        replaced = asked(rewriter, loop.graph, loop.view.node)
    except RewriteError:
        return {}
    return {
        old: new for old, new in replaced.items() if new.owner is None or scan_op(new.owner) is None
    }


def _pushed_out_of_read(loop: NamedLoop) -> dict[Variable, Variable]:
    """Return the same of ``scan_push_out_non_seq``, once nobody's outputs are gone.

    Nothing, if something that varies is left in the loop then.
    """
    view = ScanView.of(loop.view.node)
    view.unfreeze()
    kept = [slot for slot in view.outputs() if loop.graph.clients.get(slot.output)]
    condition = [] if view.condition is None else [view.condition]
    computed = [*condition, *(v for slot in kept for v in slot.inner_outputs)]
    if len(kept) == len(view.outputs()) or dependent_nodes(varying_inputs(view), computed):
        return {}
    others = varying_inputs(view).difference(v for slot in kept for v in slot.inner_inputs)
    if not others.isdisjoint(computed):
        return {}  # a row, or a state that nobody reads, is copied
    view.slots = [slot for slot in view.slots if slot in kept or not slot.inner_outputs]
    before = [slot.output for slot in kept]
    # Over inputs of its own: those in a body belong to a graph that is frozen.
    fresh: dict[Variable, Variable] = {view.n_steps: view.n_steps.type()}
    view.n_steps = fresh[view.n_steps]
    for slot in view.slots:
        if slot.outer_input is not None:
            slot.outer_input = fresh.setdefault(slot.outer_input, slot.outer_input.type())
    (node,) = {new.owner for new in view.rebuild().values() if new.owner is not None}
    try:
        replaced = asked(
            scan_push_out_non_seq, FunctionGraph(outputs=list(node.outputs), clone=False), node
        )
    except RewriteError:
        return {}
    return {
        old: replaced[new]
        for old, new in zip(before, node.outputs, strict=True)
        if new in replaced and (replaced[new].owner is None or not is_loop(replaced[new].owner))
    }


def _reads_all(loop: NamedLoop, slot: Slot) -> bool:
    """Whether somebody reads all rows of an output, or all behind some."""
    for access in accesses(loop.view, slot, loop.clients):
        if isinstance(access.node.op, Shape | Shape_i):
            continue
        if access.index is None:
            return True
        is_known = access.index.is_slice and access.extent is not None
        if is_known and access.head is None and access.tail is None:
            return True
    return False
