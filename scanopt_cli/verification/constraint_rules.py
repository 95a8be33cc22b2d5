"""Derive what a graph, bodies included, requires of its inputs' shapes and integers.

Each family of Ops has one rule. A rule joins the labels of axes that must have the same length,
records which variables are trip counts, sizes or indices, and returns the labels of the node's
outputs; ``None`` for an output means that nothing is known about its axes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.graph.traversal import io_toposort
from pytensor.raise_op import CheckAndRaise
from pytensor.scan.op import Scan
from pytensor.tensor.basic import Alloc, AllocEmpty, ARange, Choose, Eye, Join, Split
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.extra_ops import CumOp, Repeat
from pytensor.tensor.math import Dot
from pytensor.tensor.random.op import RandomVariable
from pytensor.tensor.reshape import SplitDims
from pytensor.tensor.shape import Reshape, SpecifyShape
from pytensor.tensor.subtensor import (
    AdvancedIncSubtensor,
    AdvancedSubtensor,
    IncSubtensor,
    Subtensor,
    get_idx_list,
)

from scanopt_cli.analysis.step_rows import rows_by_step
from scanopt_cli.ir.scan_view import ScanView, scan_op
from scanopt_cli.ir.slots import STATES, Slot, SlotKind
from scanopt_cli.loop import Loop, TracedLoop
from scanopt_cli.verification.requirements import Label, Labels, Requirements, join

type Rule = Callable[[Apply, Requirements], Sequence[Labels | None]]

_RULES: dict[type[Op], Rule] = {}


def walk(required: Requirements, inputs: Sequence[Variable], outputs: Sequence[Variable]) -> None:
    """Apply the rules to every node between ``inputs`` and ``outputs``."""
    for node in io_toposort(list(inputs), list(outputs)):
        known = next((_RULES[cls] for cls in type(node.op).__mro__ if cls in _RULES), None)
        if known is None:
            continue
        for output, labels in zip(node.outputs, known(node, required), strict=True):
            if labels is not None:
                required.set(output, labels)


def rule(*classes: type[Op]) -> Callable[[Rule], Rule]:
    """Register the rule of Op classes; a subclass without its own rule inherits its parent's."""

    def register(function: Rule) -> Rule:
        _RULES.update(dict.fromkeys(classes, function))
        return function

    return register


@rule(Elemwise)
def _elemwise(node: Apply, required: Requirements) -> Sequence[Labels | None]:
    ndim = node.outputs[0].type.ndim
    labels = tuple(required.aligned((v, axis) for v in node.inputs) for axis in range(ndim))
    return [labels] * len(node.outputs)


@rule(DimShuffle)
def _dimshuffle(node: Apply, required: Requirements) -> Sequence[Labels | None]:
    given = required.of(node.inputs[0])
    return [tuple(Label(1) if axis == "x" else given[int(axis)] for axis in node.op.new_order)]


@rule(CAReduce)
def _reduce(node: Apply, required: Requirements) -> Sequence[Labels | None]:
    given = required.of(node.inputs[0])
    axes = node.op.axis
    reduced = range(len(given)) if axes is None else axes
    return [tuple(label for axis, label in enumerate(given) if axis not in reduced)]


@rule(CheckAndRaise, CumOp)
def _first_input(node: Apply, required: Requirements) -> Sequence[Labels | None]:
    return [required.of(node.inputs[0])]


@rule(SpecifyShape)
def _specify_shape(node: Apply, required: Requirements) -> Sequence[Labels | None]:
    required.sizes += node.inputs[1:]
    return [required.of(node.inputs[0])]


@rule(Dot)
def _dot(node: Apply, required: Requirements) -> Sequence[Labels | None]:
    return _by_signature((("m", "n"), ("n", "p")), (("m", "p"),), node, required)


@rule(Blockwise)
def _blockwise(node: Apply, required: Requirements) -> Sequence[Labels | None]:
    if scan_op(node) is not None:
        return _scan(node, required)
    return _by_signature(node.op.inputs_sig, node.op.outputs_sig, node, required)


def _by_signature(
    inputs_signature: Sequence[Sequence[str]],
    outputs_signature: Sequence[Sequence[str]],
    node: Apply,
    required: Requirements,
) -> Sequence[Labels | None]:
    """Join core dimensions by their letter and batch dimensions by their position."""
    core = _core_labels(node.inputs, inputs_signature, required)
    batch_ndim = node.outputs[0].type.ndim - len(outputs_signature[0])
    batch = tuple(required.aligned((v, axis) for v in node.inputs) for axis in range(batch_ndim))
    return [
        batch + tuple(core.setdefault(letter, Label()) for letter in letters)
        for letters in outputs_signature
    ]


def _core_labels(
    variables: Sequence[Variable], signature: Sequence[Sequence[str]], required: Requirements
) -> dict[str, Label]:
    """Join core dimensions by their letter, and return a label for each letter."""
    core: dict[str, Label] = {}
    # A RandomVariable may lack a signature.
    for variable, letters in zip(variables, signature, strict=False):
        labels = required.of(variable)
        for letter, label in zip(letters, labels[len(labels) - len(letters) :], strict=True):
            join((core.setdefault(letter, label), label))
    return core


@rule(RandomVariable)
def _random(node: Apply, required: Requirements) -> Sequence[Labels | None]:
    _, size, *parameters = node.inputs
    required.sizes.append(size)
    _core_labels(parameters, getattr(node.op, "inputs_sig", ()), required)
    return [None, None]


@rule(Join)
def _join(node: Apply, required: Requirements) -> Sequence[Labels | None]:
    joined = node.op.axis
    along = Label(wholes=(required.of(v)[joined] for v in node.inputs))
    labels = []
    for axis in range(node.outputs[0].type.ndim):
        if axis != joined:
            join(tuple(required.of(v)[axis] for v in node.inputs))
        labels.append(along if axis == joined else required.of(node.inputs[0])[axis])
    return [tuple(labels)]


@rule(Alloc, AllocEmpty, Eye)
def _new_array(node: Apply, required: Requirements) -> Sequence[Labels | None]:
    first = 1 if isinstance(node.op, Alloc) else 0  # Alloc takes the value in front
    lengths = node.inputs[first : first + node.outputs[0].type.ndim]
    required.sizes += lengths
    return [tuple(Label(makers=(length,)) for length in lengths)]


@rule(ARange)
def _arange(node: Apply, required: Requirements) -> Sequence[Labels | None]:
    required.sizes += node.inputs
    return [(Label(makers=node.inputs),)]


@rule(Reshape, Repeat, Split, SplitDims)
def _other_inputs_are_sizes(node: Apply, required: Requirements) -> Sequence[Labels | None]:
    required.sizes += node.inputs[1:]
    return [None] * len(node.outputs)


@rule(Choose)
def _choose(node: Apply, required: Requirements) -> Sequence[Labels | None]:
    required.indices.append(node.inputs[0])
    return [None]


@rule(Subtensor)
def _subtensor(node: Apply, required: Requirements) -> Sequence[Labels | None]:
    return [_indexed(node.inputs, node.op.idx_list, required)]


@rule(IncSubtensor)
def _inc_subtensor(node: Apply, required: Requirements) -> Sequence[Labels | None]:
    buffer, value, *indices = node.inputs
    region = _indexed([buffer, *indices], node.op.idx_list, required)
    given = required.of(value)
    for axis, label in enumerate(given):
        if value.type.shape[axis] != 1:
            join((region[len(region) - len(given) + axis], label))
    return [required.of(buffer)]


def _indexed(inputs: Sequence[Variable], idx_list: Any, required: Requirements) -> Labels:
    """Return the labels of ``x[...]``; ``inputs`` are ``x`` and the indices, in order."""
    given = required.of(inputs[0])
    indices = get_idx_list(inputs, idx_list)
    labels = []
    for label, index in zip(given, indices, strict=False):
        if not isinstance(index, slice):
            required.indices.append(index)
            continue
        bounds = [bound for bound in (index.start, index.stop) if bound is not None]
        strided = index.step is not None and not _is_unit(index.step)
        variable = tuple(bound for bound in bounds if not isinstance(bound, Constant))
        required.sizes += variable
        is_part = bounds or strided
        labels.append(Label(makers=variable, wholes=(label,)) if is_part else label)
    return (*labels, *given[len(indices) :])


def _is_unit(step: Variable) -> bool:
    return isinstance(step, Constant) and abs(int(step.data)) == 1


@rule(AdvancedSubtensor)
def _advanced(node: Apply, required: Requirements) -> Sequence[Labels | None]:
    required.indices += node.inputs[1:]
    return [None]


@rule(AdvancedIncSubtensor)
def _advanced_inc(node: Apply, required: Requirements) -> Sequence[Labels | None]:
    required.indices += node.inputs[2:]
    return [required.of(node.inputs[0])]


@rule(OpFromGraph)
def _op_from_graph(node: Apply, required: Requirements) -> Sequence[Labels | None]:
    fresh = [variable.type() for variable in node.op.fgraph.inputs]
    outputs = node.op.fgraph.bind(dict(zip(node.op.fgraph.inputs, fresh, strict=True)))
    for inner, outer in zip(fresh, node.inputs, strict=True):
        required.enter(inner, outer, required.of(outer))
    walk(required, fresh, outputs)
    return [required.of(output) for output in outputs]


@rule(Scan)
def _scan(node: Apply, required: Requirements) -> Sequence[Labels | None]:
    view = ScanView.of(node)
    view.unfreeze()
    required.step_counts.append(view.n_steps)
    batch = view.batch_ndim
    for slot in view.slots:
        labels = required.of(slot.outer_input)
        if slot.kind is SlotKind.NIT_SOT:
            required.sizes.append(slot.outer_input)
        if slot.kind is SlotKind.SEQ:
            required.sequence_lengths.append(labels[batch])
        # The body receives the outer value itself, or a row of it.
        is_whole = slot.kind in (SlotKind.NON_SEQ, SlotKind.UNTRACED)
        inner_labels = labels[batch:] if is_whole else labels[batch + 1 :]
        for inner in slot.inner_inputs:
            required.enter(inner, slot.outer_input, inner_labels)
    walk(required, [v for slot in view.slots for v in slot.inner_inputs], view.inner_outputs())
    return [_scan_output(slot, view, required) for slot in view.outputs()]


def _scan_output(slot: Slot, view: ScanView, required: Requirements) -> Labels | None:
    if not slot.inner_outputs:
        return None
    core = required.of(slot.inner_outputs[0])
    for inner in (*slot.inner_inputs, *slot.inner_outputs[1:]):
        required.same(core, required.of(inner))
    outer = required.of(slot.outer_input)
    if slot.kind is SlotKind.UNTRACED:
        return core
    if slot.kind in STATES and not view.is_while:
        return (*outer[: view.batch_ndim + 1], *core)
    batch = outer[: view.batch_ndim]
    return (*batch, Label(makers=(view.n_steps,)), *core)


@rule(Loop, TracedLoop)
def _loop(node: Apply, required: Requirements) -> Sequence[Labels | None]:
    view = node.op.view(node)
    view.unfreeze()
    required.step_counts.append(view.n_steps)
    for slot in view.slots:
        for inner in slot.inner_inputs:
            required.enter(inner, slot.outer_input, required.of(slot.outer_input))
    for slot, _ in rows_by_step(view):
        required.sequence_lengths.append(required.of(slot.outer_input)[0])
    walk(required, [v for slot in view.slots for v in slot.inner_inputs], view.inner_outputs())
    found: dict[Variable | None, Labels] = {}
    for slot in view.outputs():
        rows = required.of(slot.inner_outputs[0])
        if slot.kind is SlotKind.STATE:
            before = required.of(slot.inner_inputs[0])
            # Of a state that becomes longer or shorter, as in ``h[1:]``, nothing is known.
            changes = any(label.root.wholes for label in rows)
            required.same(() if changes else before, rows)
        found[slot.last] = rows
        found[slot.outer_output] = (Label(makers=(view.n_steps,)), *rows)
    return [found.get(output) for output in node.outputs]
