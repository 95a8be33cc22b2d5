"""Compute before a loop what its steps need not compute one by one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pytensor.tensor as pt
from pytensor.compile.ops import DeepCopyOp, ViewOp
from pytensor.conditional.op import ifelse
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import io_toposort
from pytensor.scalar.basic import Add, Mul, ScalarType
from pytensor.scan.rewriting.push_out import scan_push_out_seq
from pytensor.tensor.basic import Alloc, Eye, Join, MakeVector, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Dot, Prod, Sum
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.subtensor import IncSubtensor, Subtensor, get_idx_list
from pytensor.tensor.type import DenseTensorType

from scanopt_cli.analysis.dependence import is_elementwise_map, is_replaceable_map
from scanopt_cli.analysis.lengths import AffineExpr, Lengths
from scanopt_cli.ir.scan_view import STATES, ScanView, Slot, SlotKind, scan_op
from scanopt_cli.pipeline.contract import PassContext, ScanPass

# What computes whatever the values of its inputs are. Shapes that do not fit are an error still.
_TOTAL = (
    Alloc,
    DimShuffle,
    Dot,
    Elemwise,
    Eye,
    Join,
    MakeVector,
    Prod,
    ScalarFromTensor,
    Shape,
    Shape_i,
    Sum,
    TensorFromScalar,
)


@dataclass(frozen=True)
class PushOut(ScanPass):
    """Move computation that needs no loop out of the body.

    Legal cases:

    1. What depends on non-sequences alone is computed once, before the loop. What may raise an
       error for some values is computed only if the loop runs a step (an ``ifelse``); with
       ``guarded=false``, for backends that raise no such errors, in any case.
    2. Elementwise arithmetic of sequences and non-sequences is computed for all steps at once, by
       PyTensor's ``scan_push_out_seq``.
    3. Of a sum or product of several floats, those that need no loop are made one term, to which
       case 1 or 2 applies: ``w + x[t] + h[t-1]`` is ``(w + x[t]) + h[t-1]``, rounded otherwise.

    Preconditions: the loop is not batched, and no step works in place. For case 2 the sequences are
    cut to the steps of the loop, unless they are shown to have as many rows; none that is cut has
    one row by its type, which arithmetic would repeat. A loop of which nothing is left has only
    sequences that are as long as it has steps, keeps every step of every output, carries no
    untraced state, and its mit_sots reach back equally far. Without these PyTensor's rewriter is
    wrong.

    Inside of `scanopt_cli.enabled` this pass stands in for PyTensor's own rewriters. It is in no
    preset, since whoever compiles a saved graph has those.

    What is lost is the error of shapes that do not fit in a loop that runs no step: it is raised
    all the same.

    Out of scope: matrix products of sequences, and sums (see ``push-out-sums``).
    """

    name: ClassVar[str] = "push-out"
    takes_in_place: ClassVar[bool] = False

    guarded: bool = True

    def rewrite(self, view: ScanView, context: PassContext) -> dict[Variable, Variable] | None:
        """Return all outputs, on a Scan whose body computes less."""
        if view.batch_ndim or not context.budget.is_left:
            return None
        grouped = _with_grouped_terms(ScanView.of(view.node))
        work = view if grouped is None else ScanView.of(_node_of(grouped))
        found = _push_out_sequences(work)
        if isinstance(found, dict):
            context.budget.spend()
            context.changed(view, "computes elementwise arithmetic of sequences before the loop")
        else:
            if found is not None:
                context.kept(view, f"arithmetic of sequences: {found}")
            found = _hoist(work, view, context, guarded=self.guarded)
        if found is None or grouped is None:
            return found
        return {old: found[new] for old, new in grouped.items()}


def _with_grouped_terms(view: ScanView) -> dict[Variable, Variable] | None:
    """Make one term of those that need no loop, in each sum and product; all outputs, or None."""
    view.unfreeze()
    outputs = view.inner_outputs()
    kinds = (SlotKind.SEQ, SlotKind.NON_SEQ)
    free = {slot.inner_inputs[0] for slot in view.of_kind(*kinds)}
    new: dict[Variable, Variable] = {}
    is_grouped = False
    for node in io_toposort([], outputs):
        movable = [v for v in node.inputs if v in free or isinstance(v, Constant)]
        if isinstance(node.op, Elemwise | DimShuffle) and len(movable) == len(node.inputs):
            free.update(node.outputs)
        elif _is_float_sum(node) and len(movable) > 1 and not free.isdisjoint(movable):
            rest = [new.get(v, v) for v in node.inputs if v not in movable]
            total = node.op(node.op(*movable), *rest)
            if total.type == node.outputs[0].type:
                is_grouped = True
                new[node.outputs[0]] = total
                continue
        if any(variable in new for variable in node.inputs):
            again = node.clone_with_new_inputs([new.get(v, v) for v in node.inputs])
            new.update(zip(node.outputs, again.outputs, strict=True))
    if not is_grouped:
        return None
    view.set_inner_outputs([new.get(variable, variable) for variable in outputs])
    return view.rebuild()


def _is_float_sum(node: Apply) -> bool:
    """Whether a node adds or multiplies more than two arrays of floats of one dtype."""
    dtypes = {getattr(v.type, "dtype", "") for v in (*node.inputs, *node.outputs)}
    return (
        isinstance(node.op, Elemwise)
        and isinstance(node.op.scalar_op, Add | Mul)
        and len(node.inputs) > 2
        and len(dtypes) == 1
        and dtypes.pop().startswith("float")
    )


def _node_of(replaced: dict[Variable, Variable]) -> Apply:
    nodes: set[Apply] = {new.owner for new in replaced.values() if new.owner is not None}
    (node,) = nodes
    return node


def _hoist(
    view: ScanView, told: ScanView, context: PassContext, *, guarded: bool
) -> dict[Variable, Variable] | None:
    """Compute invariants before the loop, which is ``told`` of in the remark."""
    view.unfreeze()
    outer = {slot.inner_inputs[0]: slot.outer_input for slot in view.of_kind(SlotKind.NON_SEQ)}
    outputs = view.inner_outputs()
    nodes = list(io_toposort([], outputs))
    hoisted = _without_buffers(_invariant_nodes(nodes, set(outer)), nodes)
    boundary = [
        variable
        for variable in _read_by((node for node in nodes if node not in hoisted), outputs)
        if variable.owner in hoisted
    ]
    if not boundary or not context.budget.spend():
        return None
    values = clone_replace(boundary, outer, rebuild_strict=False)
    lengths = Lengths(view.n_steps)
    if guarded and not lengths.provably_le(AffineExpr(1), lengths.value_of(view.n_steps)):
        values = _computed_if_needed(view.n_steps, values, hoisted, boundary)
    inner = [variable.type() for variable in boundary]
    view.set_inner_outputs(
        clone_replace(outputs, dict(zip(boundary, inner, strict=True)), rebuild_strict=False)
    )
    for variable, value in zip(inner, values, strict=True):
        value = variable.type.filter_variable(value)
        view.slots.append(Slot(SlotKind.NON_SEQ, 0, inner_inputs=[variable], outer_input=value))
    context.changed(told, f"moved {len(hoisted)} invariant nodes before the loop")
    return view.rebuild()


def _invariant_nodes(nodes: Iterable[Apply], known: set[Variable]) -> set[Apply]:
    """Return the nodes that compute the same in every step, given what is ``known`` to be so."""
    known = set(known)
    found = set()
    for node in nodes:
        if isinstance(node.op, ViewOp | DeepCopyOp) or not _is_numeric(node):
            continue
        if all(v in known or isinstance(v, Constant) for v in node.inputs):
            known.update(node.outputs)
            found.add(node)
    return found


def _is_numeric(node: Apply) -> bool:
    """Whether a node has to do with numbers and arrays only: no generators, no sparse matrices."""
    types = [variable.type for variable in (*node.inputs, *node.outputs)]
    return all(isinstance(one, DenseTensorType | ScalarType) for one in types)


def _without_buffers(hoisted: set[Apply], nodes: Sequence[Apply]) -> set[Apply]:
    """Return ``hoisted`` without what makes a buffer that other nodes write into, or an index.

    A buffer that is made in each step may be overwritten; made before the loop, each step would
    copy it. What a loop is given are tensors, and the scalars that indices are made of are not.
    """
    hoisted = set(hoisted)
    for node in reversed(nodes):
        if node not in hoisted:
            scalars = [v for v in node.inputs if isinstance(v.type, ScalarType)]
            hoisted.difference_update(v.owner for v in (*_written(node), *scalars) if v.owner)
    return hoisted


def _written(node: Apply) -> list[Variable]:
    """Return the inputs of a node that it writes into, once PyTensor works in place."""
    if isinstance(node.op, IncSubtensor):
        return node.inputs[:1]
    if scan_op(node) is None:
        return []
    return [slot.outer_input for slot in ScanView.of(node).of_kind(*STATES)]


def _read_by(nodes: Iterable[Apply], outputs: Iterable[Variable]) -> dict[Variable, None]:
    read = dict.fromkeys(variable for node in nodes for variable in node.inputs)
    return read | dict.fromkeys(outputs)


def _computed_if_needed(
    steps: Any, values: list[Any], hoisted: set[Apply], boundary: list[Variable]
) -> list[Any]:
    """Those of ``values`` that may raise, computed in loops of at least one step only."""
    risky = {node for node in hoisted if not _is_total(node)}
    for node in io_toposort([], boundary):
        if node in hoisted and any(v.owner in risky for v in node.inputs):
            risky.add(node)
    places = [place for place, variable in enumerate(boundary) if variable.owner in risky]
    if not places:
        return values
    guarded: Any = ifelse(
        pt.gt(steps, 0),
        [values[place] for place in places],
        [_placeholder(values[place]) for place in places],
    )
    every = list(values)
    for place, value in zip(places, guarded, strict=True):
        every[place] = value
    return every


def _placeholder(value: Any) -> Any:
    """What stands for a value that nobody reads: of its type, and as small as may be."""
    return pt.zeros([0 if n is None else n for n in value.type.shape], dtype=value.type.dtype)


def _is_total(node: Apply) -> bool:
    """Whether a node computes a value whatever the values of its inputs are."""
    op = node.op.core_op if isinstance(node.op, Blockwise) else node.op
    if isinstance(op, Subtensor):
        return all(isinstance(part, slice) for part in get_idx_list(node.inputs, op.idx_list))
    is_squeeze = isinstance(op, DimShuffle) and any(
        node.inputs[0].type.shape[axis] != 1 for axis in op.drop
    )
    return isinstance(op, _TOTAL) and not is_squeeze


def _push_out_sequences(view: ScanView) -> dict[Variable, Variable] | str | None:
    """Compute arithmetic of sequences before the loop: all outputs, or why not; None for nothing.

    PyTensor computes it of whole sequences, so these have to be equally long.
    """
    pushed = _pushed_out(view.node)
    if pushed is None:
        return None
    lengths = Lengths(view.n_steps)
    steps = lengths.value_of(view.n_steps)
    sequences = view.of_kind(SlotKind.SEQ)
    is_map = is_elementwise_map(view)
    if is_map and not is_replaceable_map(view):
        return "without it nothing is left of the loop, which does not keep every step"
    if all(lengths.length_of(slot.outer_input) == steps for slot in sequences):
        return pushed
    if is_map:
        return "a sequence is not shown to be as long as the loop has steps"
    if any(slot.outer_input.type.shape[0] == 1 for slot in sequences):
        return "a sequence has one row, which would serve for all steps"
    cut = ScanView.of(view.node)
    for slot in cut.of_kind(SlotKind.SEQ):
        whole: Any = slot.outer_input
        slot.outer_input = whole[: view.n_steps]
    replaced = cut.rebuild()
    pushed = _pushed_out(_node_of(replaced))
    return None if pushed is None else {old: pushed[new] for old, new in replaced.items()}


def _pushed_out(node: Apply) -> dict[Variable, Variable] | None:
    found: Any = scan_push_out_seq.transform(None, node)
    return {old: new for old, new in found.items() if old != "remove"} if found else None
