"""Move loop-invariant and elementwise computation out of a loop."""

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
from pytensor.tensor.subtensor import IncSubtensor, Subtensor
from pytensor.tensor.type import DenseTensorType

from scanopt_cli.analysis.costs import is_costly
from scanopt_cli.analysis.dependence import dependent_nodes, is_elementwise_map, is_replaceable_map
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.ir.graph import substituted
from scanopt_cli.ir.indexing import indices_of
from scanopt_cli.ir.scan_view import ScanView, scan_op
from scanopt_cli.ir.slots import STATES, SlotKind
from scanopt_cli.pipeline.contract import PassContext
from scanopt_cli.pipeline.loop_passes import ScanPass
from scanopt_cli.remarks import Code, Reason, Why, because

# Ops that compute for all values of their inputs. Shapes that do not fit still raise.
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

    1. Nodes that depend on non-sequences alone are computed once, before the loop. A node that may
       raise an error for some values is computed only if the loop runs a step (an ``ifelse``); with
       ``guarded=false``, for backends that raise no such errors, it always is.
    2. Elementwise arithmetic of sequences and non-sequences is computed for all steps at once, by
       PyTensor's ``scan_push_out_seq``. With ``cheap=false`` it is if it contains a function such
       as exp, or is the whole body: a loop without taps and buffers adds two numbers in less time
       than it takes to read their sum.
    3. In a sum or product of more than two floats, the operands that need no loop become one term,
       to which case 1 or 2 applies: ``w + x[t] + h[t-1]`` is computed as ``(w + x[t]) + h[t-1]``,
       which may round differently.

    Preconditions: the loop is not batched, and no step works in place. For case 2 all sequences are
    cut to the trip count, unless they provably have that many rows; a sequence that is cut does not
    have one row by its type, which arithmetic would broadcast. If case 2 applies to the whole body,
    so that no loop remains, the sequences are provably as long as the loop has steps, every output
    keeps every step, there is no untraced state, and all mit_sots have equally many initial rows.
    Without these conditions PyTensor's rewriter is wrong.

    Within `scanopt_cli.enabled` this pass replaces PyTensor's own rewriters. It is in no preset,
    since PyTensor runs its own when it compiles a saved graph.

    If shapes do not fit, the result raises an error even if the loop runs no step. If case 2
    applies to the whole body, traces of no steps have rows of the right shape, which a Scan loses.

    Out of scope: matrix products of sequences (see ``push-out-products``), and sums (see
    ``push-out-sums``).
    """

    name: ClassVar[str] = "push-out"
    accepts_in_place: ClassVar[bool] = False

    guarded: bool = True
    cheap: bool = True
    """whether sequences are added and multiplied before the loop, too"""

    def rewrite(self, view: ScanView, context: PassContext) -> dict[Variable, Variable] | None:
        """Return replacements for all outputs, from a Scan whose body computes less."""
        if view.batch_ndim:
            return None
        kinds = [SlotKind.NON_SEQ]
        if self.cheap or is_elementwise_map(view) or _has_costly_maps(view):
            kinds.append(SlotKind.SEQ)
        grouped = _with_grouped_terms(ScanView.of(view.node), kinds)
        work = view if grouped is None else ScanView.of(_node_of(grouped))
        found = _push_out_sequences(work) if SlotKind.SEQ in kinds else None
        if isinstance(found, dict):
            context.passed(view, Code.SEQUENCES_COMPUTED)
        else:
            if found is not None:
                context.missed(view, Code.SEQUENCES_NOT_COMPUTED, found)
            found = _hoist(work, view, context, guarded=self.guarded)
        if found is None or grouped is None:
            return found
        return {old: found[new] for old, new in grouped.items()}


def _has_costly_maps(view: ScanView) -> bool:
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


def _with_grouped_terms(
    view: ScanView, kinds: Sequence[SlotKind]
) -> dict[Variable, Variable] | None:
    """Group the operands that are slots of some kinds, in each sum and product of a body.

    Returns replacements for all outputs, ``None`` if there is nothing to group.
    """
    view.unfreeze()
    outputs = view.inner_outputs()
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
    """Whether a node adds or multiplies more than two float arrays of one dtype."""
    dtypes = {getattr(v.type, "dtype", "") for v in (*node.inputs, *node.outputs)}
    return (
        isinstance(node.op, Elemwise)
        and isinstance(node.op.scalar_op, Add | Mul)
        and len(node.inputs) > 2
        and len(dtypes) == 1
        and dtypes.pop().startswith("float")
    )


def _node_of(replaced: dict[Variable, Variable]) -> Apply:
    """Return the one node that computes the replacements."""
    nodes: set[Apply] = {new.owner for new in replaced.values() if new.owner is not None}
    (node,) = nodes
    return node


def _hoist(
    view: ScanView, original: ScanView, context: PassContext, *, guarded: bool
) -> dict[Variable, Variable] | None:
    """Compute loop-invariant nodes before the loop; the remark names the ``original`` loop."""
    view.unfreeze()
    outer = {slot.inner_inputs[0]: slot.outer_input for slot in view.of_kind(SlotKind.NON_SEQ)}
    outputs = view.inner_outputs()
    nodes = list(io_toposort([], outputs))
    hoisted = _without_buffers(_invariant_nodes(nodes, set(outer)), nodes)
    # What depends on constants alone stays: it needs no input, by which one could differentiate.
    moved = hoisted.intersection(dependent_nodes(set(outer), outputs))
    read = dict.fromkeys(v for node in nodes if node not in hoisted for v in node.inputs)
    boundary = [v for v in (read | dict.fromkeys(outputs)) if v.owner in moved]
    if not boundary:
        return None
    values = substituted(boundary, outer)
    if guarded and not Lengths(view.n_steps).runs():
        values = _guard(view.n_steps, values, hoisted, boundary)
    inner = [variable.type() for variable in boundary]
    view.set_inner_outputs(
        clone_replace(outputs, dict(zip(boundary, inner, strict=True)), rebuild_strict=False)
    )
    for variable, value in zip(inner, values, strict=True):
        view.add_input(SlotKind.NON_SEQ, variable, variable.type.filter_variable(value))
    context.passed(original, Code.INVARIANTS_MOVED, nodes=len(moved))
    return view.rebuild()


def _invariant_nodes(nodes: Iterable[Apply], known: set[Variable]) -> set[Apply]:
    """Return the loop-invariant nodes, given the variables ``known`` to be invariant."""
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
    """Whether a node has only dense arrays and scalars: no generators, no sparse matrices."""
    types = [variable.type for variable in (*node.inputs, *node.outputs)]
    return all(isinstance(one, DenseTensorType | ScalarType) for one in types)


def _without_buffers(hoisted: set[Apply], nodes: Sequence[Apply]) -> set[Apply]:
    """Return ``hoisted`` without nodes that make scalars or buffers that other nodes write into.

    A step may overwrite a buffer that it makes itself; if the buffer were made before the loop,
    each step would copy it. The inputs of a loop are tensors, unlike the scalars of indices.
    """
    hoisted = set(hoisted)
    for node in reversed(nodes):
        if node not in hoisted:
            scalars = [v for v in node.inputs if isinstance(v.type, ScalarType)]
            hoisted.difference_update(v.owner for v in (*_written(node), *scalars) if v.owner)
    return hoisted


def _written(node: Apply) -> list[Variable]:
    """Return the inputs of a node that it may overwrite once PyTensor makes it work in place."""
    if isinstance(node.op, IncSubtensor):
        return node.inputs[:1]
    if scan_op(node) is None:
        return []
    return [slot.outer_input for slot in ScanView.of(node).of_kind(*STATES)]


def _guard(
    steps: Any, values: list[Any], hoisted: set[Apply], boundary: list[Variable]
) -> list[Any]:
    """Return ``values``, with those that may raise computed only if the loop runs a step."""
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
    all_values = list(values)
    for place, value in zip(places, guarded, strict=True):
        all_values[place] = value
    return all_values


def _placeholder(value: Any) -> Any:
    """Return zeros of the type of ``value``, as small as possible, for the untaken branch."""
    return pt.zeros([0 if n is None else n for n in value.type.shape], dtype=value.type.dtype)


def _is_total(node: Apply) -> bool:
    """Whether a node computes a result for all values of its inputs, without an error."""
    op = node.op.core_op if isinstance(node.op, Blockwise) else node.op
    if isinstance(op, Subtensor):
        return all(isinstance(part, slice) for part in indices_of(node))
    is_squeeze = isinstance(op, DimShuffle) and any(
        node.inputs[0].type.shape[axis] != 1 for axis in op.drop
    )
    return isinstance(op, _TOTAL) and not is_squeeze


def _push_out_sequences(view: ScanView) -> dict[Variable, Variable] | Reason | None:
    """Compute elementwise arithmetic of sequences before the loop.

    Returns replacements for all outputs, or the reason against it, or ``None`` if there is nothing
    to move. PyTensor computes with whole sequences, so these have to be equally long.
    """
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
    pushed = _pushed_out(_node_of(replaced))
    return None if pushed is None else {old: pushed[new] for old, new in replaced.items()}


def _pushed_out(node: Apply) -> dict[Variable, Variable] | None:
    """Return the replacements of PyTensor's ``scan_push_out_seq``, ``None`` if it makes none."""
    found: Any = scan_push_out_seq.transform(None, node)
    return {old: new for old, new in found.items() if old != "remove"} if found else None
