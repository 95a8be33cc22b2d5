"""Count in 64 bits what may wrap in 8 or 16."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import ancestors
from pytensor.scalar import basic as ps
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Sum
from pytensor.tensor.subtensor import Subtensor
from pytensor.tensor.type import TensorType

from scanopt_cli.analysis.dependence import dependent_nodes
from scanopt_cli.analysis.initial_buffers import with_dtype
from scanopt_cli.analysis.lengths import is_integer
from scanopt_cli.analysis.narrow_states import NARROW, Growth, wrapping_states
from scanopt_cli.ir.slots import Slot, SlotKind, SlotView
from scanopt_cli.pipeline.contract import PassContext
from scanopt_cli.pipeline.loop_passes import AnyLoopPass
from scanopt_cli.remarks import Code, Why

type Clients = Callable[[Variable], Iterable[tuple[Any, int]]]
"""Returns the nodes that read a variable, and at which of their inputs."""

_WIDE = "int64"


@dataclass(frozen=True)
class WidenIntegers(AnyLoopPass):
    """Compute a state of small integers that may wrap in int64, for readers that can tell.

    Legal cases:

    1. A state of int8, uint8, int16 or uint16 to which each step adds (or from which it takes)
       integers, or that it multiplies by them; a switch may keep it. The loop may run so many steps
       that it wraps. It becomes int64.

    Readers in the step and outside that compute in a wider dtype, or compare, read the wide number:
    elementwise arithmetic, sums, and both of rows and slices of the trace. All others read it cast
    to the dtype that it had.

    Values change where the state wrapped, and only there: so no preset has this pass.

    Preconditions: the loop is not batched, no step works in place, and some reader computes in a
    wider dtype. The state reads its last value alone, and its update is made of sums, or of
    products, of integers.

    Out of scope: int32, numbers that are no tensors, and states that are bounded by a minimum or a
    remainder.
    """

    name: ClassVar[str] = "widen-integers"
    accepts_in_place: ClassVar[bool] = False

    def rewrite(self, view: SlotView, context: PassContext) -> dict[Variable, Variable] | None:
        """Return replacements for all outputs, and for what reads the wide ones."""
        names = context.names(view)
        widened: list[Slot] = []
        for growth in wrapping_states(view):
            dtype = growth.slot.inner_inputs[0].type.dtype
            if is_widened(view, growth, context.clients):
                context.passed(view, Code.STATE_WIDENED, names[growth.slot], dtype=dtype)
                widened.append(growth.slot)
            else:
                why = Why.READERS_NARROW
                context.missed(view, Code.STATE_NARROW, why, names[growth.slot], dtype=dtype)
        if not widened:
            return None
        view.unfreeze()
        outputs = view.inner_outputs()
        wide: dict[Variable, Variable] = {}
        for slot in widened:
            ((state,), (update,)) = slot.inner_inputs, slot.inner_outputs
            wide[state] = state.type.clone(dtype=_WIDE)()
            outputs[outputs.index(update)] = _wide_update(update, state, wide[state])
            slot.inner_inputs, slot.outer_input = [wide[state]], with_dtype(slot.outer_input, _WIDE)
        view.set_inner_outputs(_reading_wide(outputs, wide))
        replacements = view.rebuild()
        outputs = [output for slot in widened for output in slot.outer_outputs]
        wide_outputs = {output: replacements[output] for output in outputs}
        for old, new in wide_outputs.items():
            replacements[old] = pt.cast(new, old.type.dtype)
        return replacements | _read_wide(wide_outputs, context.clients)


def is_widened(view: SlotView, growth: Growth, clients: Clients) -> bool:
    """Whether the pass takes a state: a plain one, of which a reader computes in a wider dtype."""
    slot = growth.slot
    is_plain = slot.kind in (SlotKind.SIT_SOT, SlotKind.UNTRACED, SlotKind.STATE)
    is_array = isinstance(slot.outer_input.type, TensorType)
    if view.batch_ndim or not (is_plain and is_array):
        return False
    return any(_is_wide_reader(node) for node in _readers(slot.outer_outputs, clients)) or any(
        _is_wide_reader(node) and not _leads_to(node, slot)
        for node, _ in view.op.fgraph.clients[slot.inner_inputs[0]]
    )


def _leads_to(node: Any, slot: Slot) -> bool:
    """Whether a node of a step is a part of the update of a state alone."""
    (update,) = slot.inner_outputs
    return is_integer(node.outputs[0]) and node.outputs[0] in ancestors([update])


def _is_wide_reader(node: Any) -> bool:
    """Whether a node computes in a dtype that holds more than the small integers that it reads."""
    if not isinstance(getattr(node, "op", None), Elemwise | Sum):
        return False
    (made, *others) = node.outputs
    return not others and made.type.dtype not in NARROW


def _readers(variables: Iterable[Variable], clients: Clients) -> list[Apply]:
    """Return the nodes that read rows, slices or views of variables, and these themselves."""
    found: dict[Apply, None] = {}
    waiting = list(variables)
    while waiting:
        for node, position in clients(waiting.pop()):
            if node in found:
                continue
            found[node] = None
            if isinstance(node.op, Subtensor | DimShuffle) and not position:
                waiting.append(node.outputs[0])
    return list(found)


def _read_wide(wide: Mapping[Variable, Variable], clients: Clients) -> dict[Variable, Variable]:
    """Return what replaces the readers of variables that compute in a wider dtype."""
    replacements = {}
    known = dict(wide)
    readers = _readers(wide, clients)
    for node in readers:
        if isinstance(node.op, Subtensor | DimShuffle) and node.inputs[0] in known:
            source, *index = node.inputs
            known[node.outputs[0]] = node.op.make_node(known[source], *index).outputs[0]
    for node in readers:
        if _is_wide_reader(node) and (new := _computed_wide(node, known)) is not None:
            replacements[node.outputs[0]] = new
    return replacements


def _computed_wide(node: Apply, wide: Mapping[Variable, Variable]) -> Variable | None:
    """Return what a node computes of the wide numbers, in the dtype in which it did."""
    (old,) = node.outputs
    inputs = []
    for variable in node.inputs:
        new: Any = wide.get(variable, variable)
        if variable in wide and old.type.dtype != "bool" and isinstance(node.op, Elemwise):
            new = pt.cast(new, old.type.dtype)
        inputs.append(new)
    made: Variable = node.op.make_node(*inputs).outputs[0]
    return made if made.type.dtype == old.type.dtype else None


def _reading_wide(outputs: Sequence[Variable], wide: Mapping[Variable, Variable]) -> list[Variable]:
    """Return the outputs of a step that reads wide states, or these cast to what they were."""
    body = FunctionGraph(outputs=list(outputs), clone=False)
    for node in body.toposort():
        if _is_wide_reader(node) and not wide.keys().isdisjoint(node.inputs):
            new = _computed_wide(node, wide)
            if new is not None:
                body.replace(node.outputs[0], new, import_missing=True)
    for old, new in wide.items():
        if old in body.clients:
            body.replace(old, pt.cast(new, old.type.dtype), import_missing=True)
    return list(body.outputs)


def _wide_update(update: Variable, narrow: Variable, wide: Variable) -> Variable:
    """Return the next value of a state, computed of the wide one in its dtype."""
    found: dict[Variable, Variable] = {narrow: wide}
    for node in dependent_nodes({narrow}, [update]):
        op: Any = node.op
        parts: list[Any] = [found[v] if v in found else pt.cast(v, _WIDE) for v in node.inputs]
        match op.scalar_op:
            case ps.Cast():
                (made,) = parts
            case ps.Switch():
                made = pt.switch(node.inputs[0], *parts[1:])
            case _:
                made = op.make_node(*parts).outputs[0]
        found[node.outputs[0]] = made
    return found[update]
