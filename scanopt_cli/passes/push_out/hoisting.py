"""Computes the loop-invariant nodes of a body before the loop."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytensor.tensor as pt
from pytensor.compile.builders import infer_shape
from pytensor.compile.ops import DeepCopyOp, ViewOp
from pytensor.conditional.op import ifelse
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import io_toposort
from pytensor.scalar.basic import Composite, IntDiv, Mod, Pow, ScalarType
from pytensor.tensor.basic import (
    Alloc,
    Eye,
    Join,
    MakeVector,
    ScalarFromTensor,
    TensorFromScalar,
)
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.linalg.decomposition.cholesky import Cholesky
from pytensor.tensor.linalg.decomposition.lu import LUFactor
from pytensor.tensor.math import Dot, Prod, Sum
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.subtensor import IncSubtensor, Subtensor
from pytensor.tensor.type import DenseTensorType, discrete_dtypes

from scanopt_cli.analysis.dependence import dependent_nodes
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.matrix_ops import SOLVERS
from scanopt_cli.analysis.step_rows import invariant_inputs
from scanopt_cli.analysis.value_ranges import ValueRanges
from scanopt_cli.ir.declared_lengths import declaring_as
from scanopt_cli.ir.graph import substituted
from scanopt_cli.ir.indexing import indices_of, number
from scanopt_cli.ir.inner_graphs import core_op
from scanopt_cli.ir.levels import IfElse, always_computed
from scanopt_cli.ir.scan_view import ScanView, scan_op
from scanopt_cli.ir.slots import STATES, SlotView
from scanopt_cli.pipeline.contract import PassContext
from scanopt_cli.remarks import Code

# Ops that compute for all values of their inputs. Shapes that do not fit still raise.
_TOTAL = (
    DimShuffle,
    Dot,
    Elemwise,
    Join,
    MakeVector,
    Prod,
    ScalarFromTensor,
    Shape,
    Shape_i,
    Sum,
    TensorFromScalar,
)
# Ops that compute NaN where there is no result.
_NAN_INSTEAD = (Cholesky, LUFactor, *SOLVERS)
# Matrices of at most so many rows and columns are multiplied faster than a condition is decided.
_SMALL = 4


def hoist(
    view: SlotView,
    original: SlotView,
    context: PassContext,
    *,
    guarded: bool,
    reads: bool = True,
) -> dict[Variable, Variable] | None:
    """Compute loop-invariant nodes before the loop; the remark names the ``original`` loop.

    With ``guarded``, what may raise or is dear is computed only if there is a step, and what may
    raise in a branch of a step stays there. Without ``reads``, what is merely read of an array
    stays in the step if there may be none.
    """
    if not view.is_unfrozen:
        view.unfreeze()
    outer = invariant_inputs(view)
    outputs = view.inner_outputs()
    nodes = list(io_toposort([], outputs))
    hoisted = _without_buffers(invariant_nodes(nodes, set(outer)), nodes)
    if guarded:
        hoisted = without_branches(hoisted, nodes, outputs)
    guarded = guarded and not Lengths(view.n_steps).runs()
    if guarded and not reads:
        hoisted = _without_reads(hoisted, nodes)
    # What depends on constants alone stays: it needs no input, by which one could differentiate.
    moved = hoisted.intersection(dependent_nodes(set(outer), outputs))
    read = dict.fromkeys(v for node in nodes if node not in hoisted for v in node.inputs)
    boundary = [v for v in (read | dict.fromkeys(outputs)) if v.owner in moved]
    if not boundary:
        return None
    values = substituted(boundary, outer)
    if guarded:
        values = _guard(view, values, hoisted, boundary, list(outer.values()))
    inner = [variable.type() for variable in boundary]
    view.set_inner_outputs(
        clone_replace(outputs, dict(zip(boundary, inner, strict=True)), rebuild_strict=False)
    )
    for variable, value in zip(inner, values, strict=True):
        # Outside, more lengths of 1 may be known than in the body, and a Scan would refuse them.
        outside = declaring_as(variable.type.filter_variable(value), variable)
        view.add_input(view.invariant_kind, variable, outside)
    context.passed(original, Code.INVARIANTS_MOVED, nodes=len(moved))
    return view.rebuild()


def invariant_nodes(nodes: Iterable[Apply], known: set[Variable]) -> set[Apply]:
    """Return the loop-invariant nodes, given the variables ``known`` to be invariant."""
    known = set(known)
    found = set()
    for node in nodes:
        if isinstance(node.op, ViewOp | DeepCopyOp) or not is_numeric(node):
            continue
        if all(v in known or isinstance(v, Constant) for v in node.inputs):
            known.update(node.outputs)
            found.add(node)
    return found


def is_numeric(node: Apply) -> bool:
    """Whether a node has only dense arrays and scalars: no generators, no sparse matrices."""
    types = [variable.type for variable in (*node.inputs, *node.outputs)]
    return all(isinstance(one, DenseTensorType | ScalarType) for one in types)


def _without_buffers(hoisted: set[Apply], nodes: Sequence[Apply]) -> set[Apply]:
    """Return ``hoisted`` without nodes that make scalars or buffers that other nodes write into.

    A step may overwrite a buffer that it makes itself; if the buffer were made before the loop,
    each step would copy it. The inputs of a loop are tensors, unlike the scalars of indices. The
    lengths of arrays that a step allocates or reshapes are computed in the step, too: an input
    would neither say that a buffer has one row more than a loop inside has steps, of which then all
    rows were kept, nor that a length is 1, as the sequences of a loop inside may have to be.
    """
    hoisted = set(hoisted)
    lengths: set[Apply] = set()
    for node in reversed(nodes):
        if node not in hoisted:
            scalars = [v for v in node.inputs if isinstance(v.type, ScalarType)]
            hoisted.difference_update(v.owner for v in (*_written(node), *scalars) if v.owner)
            if node.op._output_type_depends_on_input_value or node in lengths:
                found = {v.owner for v in node.inputs if v.owner and _is_length(v.owner)}
                lengths |= found
                hoisted -= found
    return hoisted


def _is_length(node: Apply) -> bool:
    """Whether a node computes lengths of arrays, or whole numbers of whole numbers."""
    if not is_numeric(node):
        return False
    kinds: list[Any] = [v.type for v in (*node.inputs, *node.outputs)]
    are_whole = all(kind.ndim <= 1 and kind.dtype in discrete_dtypes for kind in kinds)
    return are_whole or isinstance(node.op, Shape | Shape_i)


def _without_reads(hoisted: set[Apply], nodes: Sequence[Apply]) -> set[Apply]:
    """Return ``hoisted`` without entries and rows that are read, and of which it computes nothing.

    Reading them may raise, and the conditional that would prevent it takes longer than a step does
    to read them.
    """
    hoisted = set(hoisted)
    needed: set[Apply | None] = set()
    for node in reversed(nodes):
        if node in hoisted:
            if isinstance(node.op, Subtensor) and not is_total(node) and node not in needed:
                hoisted.remove(node)
            else:
                needed.update(v.owner for v in node.inputs)
    return hoisted


def without_branches(
    moved: set[Apply], nodes: Sequence[Apply], outputs: Sequence[Variable]
) -> set[Apply]:
    """Return ``moved`` without what a step computes in a branch alone, and what may raise there.

    Before the loop it would raise the error of a branch that no step takes. A conditional that is
    moved itself takes its branches with it.
    """
    always = always_computed(outputs)
    risky = {node for node in moved if node not in always and may_raise(node)}
    if not risky:
        return moved
    for node in nodes:
        # Of a conditional, only the condition is computed whatever it holds.
        computed = node.inputs[:1] if isinstance(node.op, IfElse) else node.inputs
        if node in moved and any(v.owner in risky for v in computed):
            risky.add(node)
    kept = set(moved)
    for node in reversed(nodes):
        if node not in kept:
            kept.difference_update(v.owner for v in node.inputs if v.owner in risky)
    return kept


def _written(node: Apply) -> list[Variable]:
    """Return the inputs of a node that it may overwrite once PyTensor makes it work in place."""
    if isinstance(node.op, IncSubtensor):
        return node.inputs[:1]
    if scan_op(node) is None:
        return []
    return [slot.outer_input for slot in ScanView.of(node).of_kind(*STATES)]


def _guard(
    view: SlotView,
    values: list[Any],
    hoisted: set[Apply],
    boundary: list[Variable],
    known: list[Variable],
) -> list[Any]:
    """Return ``values``, with those that may raise or are dear only computed if there is a step.

    They are computed of the variables ``known``.
    """
    risky = {node for node in hoisted if not is_total(node) or _is_dear(node)}
    for node in io_toposort([], boundary):
        if node in hoisted and any(v.owner in risky for v in node.inputs):
            risky.add(node)
    places = [place for place, variable in enumerate(boundary) if variable.owner in risky]
    if not places:
        return values
    risky_values = [values[place] for place in places]
    steps: Any = view.n_steps
    guarded: Any = ifelse(pt.gt(steps, 0), risky_values, _placeholders(risky_values, known))
    all_values = list(values)
    for place, value in zip(places, guarded, strict=True):
        all_values[place] = value
    return all_values


def _placeholders(values: list[Any], known: list[Variable]) -> list[Any]:
    """Return zeros for the branch that is not taken.

    The rows of a TracedLoop that runs no step are as long as the body makes them of what it reads,
    and what all steps compute of rows is computed before a loop of no steps, too. So the zeros have
    the lengths of the values, if these can be computed without them.
    """
    found = [placeholder(value) for value in values]
    shapes = infer_shape(values, (), ())
    without_errors = _without_errors(known, [size for shape in shapes if shape for size in shape])
    for place, (value, shape) in enumerate(zip(values, shapes, strict=True)):
        if shape and without_errors.issuperset(shape):
            zeros = pt.zeros([_at_least_0(size) for size in shape], dtype=value.type.dtype)
            found[place] = value.type.filter_variable(zeros)
    return found


def _without_errors(known: list[Variable], results: list[Variable]) -> set[Variable]:
    """Return which of ``results`` are computed of ``known`` variables without an error."""
    failing: set[Variable] = set()
    for node in io_toposort(known, results):
        if not is_total(node) or not failing.isdisjoint(node.inputs):
            failing |= set(node.outputs).difference(known)
    return set(results) - failing


def _at_least_0(size: Any) -> Any:
    """Return a length that no Alloc refuses."""
    lengths = Lengths()
    return size if lengths.provably_le(0, lengths.value_of(size)) else pt.maximum(size, 0)


def placeholder(value: Any) -> Any:
    """Return zeros of the type of ``value``, as small as possible, for the untaken branch."""
    return pt.zeros([0 if n is None else n for n in value.type.shape], dtype=value.type.dtype)


def _is_dear(node: Apply) -> bool:
    """Whether a node is a product of two matrices of which not all lengths are known to be small.

    All else that takes longer than to read its inputs is not total, and guarded for that.
    """
    if not isinstance(core_op(node.op), Dot):
        return False
    shapes = [v.type.shape[-2:] for v in node.inputs]
    return all(len(shape) == 2 and 1 not in shape for shape in shapes) and any(
        length is None or length > _SMALL for shape in shapes for length in shape
    )


def may_raise(node: Apply) -> bool:
    """Whether a node may raise an error at some values of its inputs; other shapes may, too."""
    return not (is_total(node) or isinstance(core_op(node.op), _NAN_INSTEAD))


def is_total(node: Apply) -> bool:
    """Whether a node computes a result for all values of its inputs, without an error."""
    op = core_op(node.op)
    if isinstance(op, Subtensor):
        return all(isinstance(part, slice) and number(part.step, 1) for part in indices_of(node))
    if isinstance(op, Alloc | Eye):
        sizes = node.inputs[1:] if isinstance(op, Alloc) else node.inputs[:2]
        lengths = Lengths()
        return all(lengths.provably_le(0, lengths.value_of(size)) for size in sizes)
    if isinstance(op, Elemwise) and isinstance(op.scalar_op, Composite):
        return not any(_may_divide(inner) for inner in op.scalar_op.fgraph.apply_nodes)
    if isinstance(op, Elemwise) and node.outputs[0].type.dtype in discrete_dtypes:
        match op.scalar_op:
            case Pow():  # 2 ** -1 of integers raises
                return False
            case IntDiv() | Mod():
                return 0 not in ValueRanges().of(node.inputs[1])
    is_squeeze = isinstance(op, DimShuffle) and any(
        node.inputs[0].type.shape[axis] != 1 for axis in op.drop
    )
    return isinstance(op, _TOTAL) and not is_squeeze


def _may_divide(node: Apply) -> bool:
    """Whether a node of what was fused to one function of numbers may divide an integer by 0."""
    if isinstance(node.op, Composite):
        return any(_may_divide(inner) for inner in node.op.fgraph.apply_nodes)
    is_division = isinstance(node.op, IntDiv | Mod | Pow)
    return is_division and node.outputs[0].type.dtype in discrete_dtypes
