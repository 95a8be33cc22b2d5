"""Rewrites of bodies that PyTensor's push-out rewrites would miscompile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, ClassVar

import pytensor.tensor as pt
from pytensor.compile.ops import DeepCopyOp, deep_copy_op
from pytensor.graph.basic import Constant, Variable
from pytensor.scalar.basic import Add
from pytensor.tensor.basic import as_tensor
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Dot
from pytensor.tensor.subtensor import Subtensor

from scanopt_cli.analysis.accesses.indices import rows_index
from scanopt_cli.analysis.dependence import (
    are_elementwise_map,
    dependent_nodes,
    is_replaceable_map,
    keeps_every_step,
    varying_inputs,
)
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.minima import minimum_parts
from scanopt_cli.ir.scan_view import ScanView
from scanopt_cli.ir.slots import Slot, SlotKind
from scanopt_cli.pipeline.contract import PassContext
from scanopt_cli.pipeline.loop_passes import ScanPass
from scanopt_cli.remarks import Code


@dataclass(frozen=True)
class CompileSafeBodies(ScanPass):
    """Cases 2 and 3 of ``compile-safe``, and the copies of case 1; see `CompileSafe`."""

    name: ClassVar[str] = "compile-safe"
    accepts_batched: ClassVar[bool] = False

    def rewrite(self, view: ScanView, context: PassContext) -> dict[Variable, Variable] | None:
        """Return replacements for all outputs, from a Scan whose body PyTensor compiles right."""
        names = context.names(view)
        long = _long_sequences(view)
        sums = [slot for slot in view.of_kind(SlotKind.SIT_SOT) if _is_misread_sum(view, slot)]
        # Positions of inner outputs, which stay valid when the body is unfrozen.
        copied = _to_copy(view, context)
        if not (long or copied or sums):
            return None
        stop = pt.scalar_from_tensor(view.n_steps) if long else None
        for slot in long:
            context.passed(view, Code.SEQUENCE_CUT, names[slot])
            sequence: Any = slot.outer_input
            slot.outer_input = sequence[:stop]
        if not (copied or sums):
            return view.rebuild()
        view.unfreeze()
        for slot in sums:
            context.passed(view, Code.SUM_REGROUPED, names[slot])
            slot.inner_outputs = [_regrouped(slot)]
        if copied:
            copy_outputs(view, copied, context)
        return view.rebuild()


def copy_outputs(view: ScanView, places: Sequence[int], context: PassContext) -> None:
    """Make a step of an unfrozen view copy its inner outputs at ``places``."""
    outputs = view.inner_outputs()
    for place in places:
        outputs[place] = deep_copy_op.make_node(outputs[place]).outputs[0]
    view.set_inner_outputs(outputs)
    context.passed(view, Code.OUTPUTS_COPIED, outputs=len(places))


def _long_sequences(view: ScanView) -> list[Slot]:
    """Return the sequences not provably as long as the loop, if PyTensor may compute with them.

    PyTensor computes elementwise arithmetic for all rows of a sequence.
    """
    lengths = Lengths(view.n_steps)
    found = [s for s in view.of_kind(SlotKind.SEQ) if not _is_cut(s, view, lengths)]
    read = {v for slot in found for v in slot.inner_inputs}
    is_used = any(
        isinstance(node.op, Elemwise | DimShuffle) and not read.isdisjoint(node.inputs)
        for node in view.op.fgraph.toposort()
    )
    return found if is_used else []


def _is_cut(slot: Slot, view: ScanView, lengths: Lengths) -> bool:
    """Whether a sequence is provably as long as the loop, or is cut to the trip count."""
    return any(_has_few_rows(v, view, lengths) for v in _of_as_many_rows(slot.outer_input))


def _of_as_many_rows(variable: Any) -> Iterator[Variable]:
    """Yield ``variable``, and what its rows are computed from, row by row."""
    waiting: list[Any] = [variable]
    seen: set[Variable] = set()
    while waiting:
        found = waiting.pop()
        if found in seen:
            continue
        seen.add(found)
        yield found
        node = found.owner
        match None if node is None else node.op:
            case Dot():
                waiting.append(node.inputs[0])
            case DimShuffle(new_order=order) if order[:1] == (0,):
                waiting.append(node.inputs[0])
            case Elemwise():
                waiting += (v for v in node.inputs if v.type.ndim and v.type.shape[0] != 1)


def _has_few_rows(variable: Variable, view: ScanView, lengths: Lengths) -> bool:
    """Whether ``variable`` provably has no more rows than the loop has steps."""
    if lengths.length_of(variable) == lengths.steps:
        return True
    node = variable.owner
    index = None if node is None else rows_index(node, 0)
    if not isinstance(index, slice) or not isinstance(node.op, Subtensor):
        return False
    if index.stop is None or index.start is not None or index.step is not None:
        return False
    stop = lengths.value_of(index.stop)
    # ``x[:k]`` has as many rows as the smaller of its length and k.
    parts = {lengths.value_of(part) for part in minimum_parts(view.n_steps) or ()}
    return stop == lengths.steps or parts == {stop, lengths.length_of(node.inputs[0])}


def _to_copy(view: ScanView, context: PassContext) -> list[int]:
    """Return the positions of the inner outputs to copy, so that PyTensor keeps the loop.

    PyTensor looks for loops to replace by expressions after it has moved invariants out, removed
    dead outputs, and found sequences with equal rows.
    """
    read = [slot for slot in view.outputs() if context.clients(slot.outer_output)]
    kept = [variable for slot in read for variable in slot.inner_outputs]
    computed = {variable for variable in kept if variable.owner is not None}
    if any(isinstance(variable.owner.op, DeepCopyOp) for variable in computed):
        return []
    condition = [] if view.condition is None else [view.condition]
    constant = [s for s in view.of_kind(SlotKind.SEQ) if isinstance(s.outer_input, Constant)]
    varying = varying_inputs(view)
    may_vary = varying.difference(v for slot in constant for v in slot.inner_inputs)
    for inputs in (varying, may_vary):
        nodes = dependent_nodes(inputs, [*kept, *condition])
        if not nodes:
            is_trace = all(slot.kind is SlotKind.NIT_SOT for slot in read)
            is_right = is_trace and keeps_every_step(view)
        else:
            is_map = are_elementwise_map(view, nodes)
            is_right = view.is_while or not is_map or is_replaceable_map(view)
        if not is_right:
            outputs = [variable for slot in view.outputs() for variable in slot.inner_outputs]
            return [place for place, variable in enumerate(outputs) if variable in computed]
    return []


def _terms_of_update(slot: Slot) -> list[Any]:
    """Return the terms of the sum that updates a state, if one is a matrix product, else none."""
    node = slot.inner_outputs[0].owner
    if node is None or not isinstance(node.op, Elemwise) or not isinstance(node.op.scalar_op, Add):
        return []
    return list(node.inputs) if any(map(_is_product, node.inputs)) else []


def _is_product(variable: Variable) -> bool:
    return variable.owner is not None and isinstance(variable.owner.op, Dot)


def _is_misread_sum(view: ScanView, slot: Slot) -> bool:
    """Whether PyTensor's ``scan_push_out_add`` may misread the update of a state."""
    terms = _terms_of_update(slot)
    if len(terms) != 2:
        return bool(terms)
    if slot.inner_inputs[0] not in terms:
        return False
    (product,) = [term for term in terms if term is not slot.inner_inputs[0]]
    state = slot.inner_inputs[0].type
    if not _is_product(product) or product.type.dtype != state.dtype or "float" not in state.dtype:
        return True
    lengths = Lengths(view.n_steps)
    sequences = view.of_kind(SlotKind.SEQ)
    cut = {s.inner_inputs[0] for s in sequences if _is_cut(s, view, lengths)}
    return not cut.issuperset(product.owner.inputs)


def _regrouped(slot: Slot) -> Variable:
    """Return the sum as a difference, or as nested sums of two terms in the same order.

    Its outer node does not add a matrix product to the state.
    """
    terms = [pt.cast(term, slot.inner_outputs[0].type.dtype) for term in _terms_of_update(slot)]
    if len(terms) == 2:
        first, second = terms if _is_product(terms[1]) else terms[::-1]
        return as_tensor(first - -second)
    return as_tensor(reduce(pt.add, terms))
