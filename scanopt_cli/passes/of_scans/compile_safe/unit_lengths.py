"""Lengths of 1 that a graph does not declare, and that PyTensor finds while it compiles.

PyTensor infers types again whenever it makes a node anew. A Scan takes a sequence or non-sequence
only if that declares lengths of 1 along the axes along which its body does. So once PyTensor finds
another, outside or in what it moves out of the body, each of its rewrites of the loop fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytensor.tensor as pt
from pytensor.compile.ops import DeepCopyOp
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import HasInnerGraph
from pytensor.graph.traversal import io_toposort
from pytensor.scan.op import Scan
from pytensor.tensor.basic import MakeVector
from pytensor.tensor.type import TensorType, integer_dtypes

from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.ir.declared_lengths import copy_of_type, declaring_as, ones
from scanopt_cli.ir.inner_graphs import core_op
from scanopt_cli.ir.scan_view import ScanView
from scanopt_cli.ir.slots import STATES, Slot, SlotKind
from scanopt_cli.pipeline.contract import PassContext, Rewrite
from scanopt_cli.remarks import Code


def declare_unit_lengths(context: PassContext) -> Iterator[Rewrite]:
    """Make the nodes anew that do not declare a length of 1, and the loops that read them.

    The outputs of a body keep their types, by copies that declare as little as they did.
    """
    lengths = Lengths()
    kept = set(context.fgraph.outputs) if context.path else set()
    for node in context.fgraph.toposort():
        made = _remade(node, node.inputs, lengths)
        if made is None:
            continue
        view = ScanView.of(node) if isinstance(node.op, Scan) else None
        context.passed(view, Code.UNIT_LENGTH_DECLARED)
        if view is not None:
            context.keep_title(node, made[0].owner)
        pairs = zip(node.outputs, made, strict=True)
        yield Rewrite({old: declaring_as(new, old) if old in kept else new for old, new in pairs})


def loop_of_narrower(
    op: Scan, inputs: Sequence[Variable], kinds: Sequence[Any], outputs: Sequence[Variable]
) -> Sequence[Variable]:
    """Return the outputs of a Scan whose inputs declare more lengths than when it was made.

    ``kinds`` are the types that they had then. If the body cannot declare the same lengths, it
    reads copies that declare as little as they did.
    """
    node = Apply(op, list(inputs), [variable.type() for variable in outputs])
    try:
        made = _remade_loop(node, inputs)
        if made is not None:
            return made
    except (TypeError, ValueError):
        pass  # what a step computes has other lengths then
    wide = [
        v if v.type == kind else copy_of_type(v, kind)
        for v, kind in zip(inputs, kinds, strict=True)
    ]
    rebuilt: Apply = op.make_node(*wide)
    return rebuilt.outputs


def _remade(node: Apply, inputs: Sequence[Variable], lengths: Lengths) -> Sequence[Variable] | None:
    """Return the outputs of ``node`` made anew of ``inputs``, ``None`` if it may stay as it is."""
    if isinstance(node.op, Scan):
        return _remade_loop(node, inputs)
    is_same = all(map(_is, node.inputs, inputs))
    types = _found(node, inputs, lengths)
    if is_same and types == [variable.type for variable in node.outputs]:
        return None
    return Apply(node.op, list(inputs), [kind() for kind in types]).outputs


def _remade_loop(node: Apply, inputs: Sequence[Variable]) -> Sequence[Variable] | None:
    """Return the outputs of a Scan, fed with ``inputs``, whose body declares lengths as they do."""
    is_same = all(map(_is, node.inputs, inputs))
    if not is_same:
        # The Scan itself may refuse the inputs.
        node = Apply(node.op, list(inputs), [variable.type() for variable in node.outputs])
    view = ScanView.of(node)
    view.unfreeze()
    lengths = Lengths()
    fed = view.of_kind(SlotKind.SEQ, SlotKind.NON_SEQ)
    memo = {slot.inner_inputs[0]: _as_fed(slot) for slot in fed}
    for inner in io_toposort([], view.inner_outputs()):
        made = _remade(inner, [memo.get(v, v) for v in inner.inputs], lengths)
        memo.update(zip(inner.outputs, made or inner.outputs, strict=True))
    if all(ones(old) == ones(new) for old, new in memo.items()):
        return None if is_same else node.outputs
    for slot in fed:
        slot.inner_inputs = [memo[slot.inner_inputs[0]]]
    view.set_inner_outputs([memo.get(v, v) for v in view.inner_outputs()])
    for slot in view.of_kind(*STATES):
        slot.inner_outputs = [declaring_as(v, slot.inner_inputs[0]) for v in slot.inner_outputs]
    rebuilt = view.rebuild()
    return [rebuilt[variable] for variable in node.outputs]


def _as_fed(slot: Slot) -> Variable:
    """Return the inner input of a sequence or non-sequence with what its outer one declares."""
    (inner,) = slot.inner_inputs
    outer: Any = slot.outer_input.type
    if not isinstance(outer, TensorType):
        return inner
    kind = _joined(inner.type, outer.shape[outer.ndim - inner.type.ndim :])
    return inner if kind == inner.type else kind()


def _found(node: Apply, inputs: Sequence[Variable], lengths: Lengths) -> list[Any]:
    """Return the types of a node's outputs with the lengths of 1 that PyTensor infers."""
    types: list[Any] = [variable.type for variable in node.outputs]
    is_open = any(isinstance(kind, TensorType) and None in kind.shape for kind in types)
    # A copy is not made anew: PyTensor does not look through it.
    if not is_open or isinstance(core_op(node.op), HasInnerGraph | DeepCopyOp):
        return types
    try:
        made: Apply = node.op.make_node(*(_stand_in(v, lengths) for v in inputs))
    except Exception:
        return types  # an Op that makes its nodes of something else
    found: list[Any] = [variable.type for variable in made.outputs]
    return [
        _joined(kind, [1 if length == 1 else None for length in other.shape])
        if isinstance(kind, TensorType) and isinstance(other, TensorType)
        else kind
        for kind, other in zip(types, found, strict=True)
    ]


def _stand_in(variable: Any, lengths: Lengths) -> Variable:
    """Return what an Op may infer types of: a constant, or a variable with nothing upstream.

    PyTensor clones all that is upstream of a shape to infer it.
    """
    node, kind = variable.owner, variable.type
    if isinstance(variable, Constant):
        return variable
    is_shape = isinstance(kind, TensorType) and kind.dtype in integer_dtypes and node is not None
    if is_shape and not kind.ndim:
        value = lengths.value_of(variable)
        if value.is_constant:
            return pt.constant(value.constant, dtype=kind.dtype)
    if is_shape and isinstance(node.op, MakeVector):
        made: Apply = node.op.make_node(*(_stand_in(v, lengths) for v in node.inputs))
        return made.outputs[0]
    fresh: Variable = kind()
    return fresh


def _joined(kind: TensorType, shape: Sequence[int | None]) -> TensorType:
    """Return ``kind`` with the lengths of ``shape`` where it declares none."""
    both = zip(kind.shape, shape, strict=True)
    return kind.clone(shape=tuple(other if own is None else own for own, other in both))


def _is(one: object, other: object) -> bool:
    return one is other
