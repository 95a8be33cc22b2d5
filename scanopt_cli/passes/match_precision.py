"""Carry a state in the precision in which its steps compute."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.scalar.basic import Cast, Composite
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.math import Dot
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.subtensor import Subtensor
from pytensor.tensor.type import TensorType

from scanopt_cli.analysis.accesses.accesses import accesses
from scanopt_cli.analysis.buffers import trimmed
from scanopt_cli.analysis.initial_buffers import initial_rows, with_dtype
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.single_precision import (
    DOUBLE,
    SINGLE,
    SingleEquivalents,
    computed_in,
    is_cast,
    is_regrouped_by,
)
from scanopt_cli.facts import Fact
from scanopt_cli.ir.inner_graphs import core_op
from scanopt_cli.ir.scan_view import view_of
from scanopt_cli.ir.slots import STATES, Slot, SlotKind, SlotView
from scanopt_cli.pipeline.contract import PassContext
from scanopt_cli.pipeline.loop_passes import AnyLoopPass, works_in_place
from scanopt_cli.remarks import Code, Reason, Why, because

type Clients = Callable[[Variable], Sequence[tuple[Any, int]]]
"""Returns the nodes that read a variable, and at which of their inputs."""

_KINDS = frozenset({SlotKind.SIT_SOT, SlotKind.MIT_SOT, SlotKind.UNTRACED, SlotKind.STATE})


@dataclass(frozen=True)
class MatchPrecision(AnyLoopPass):
    """Carry a state in the precision in which its steps compute, so that they cast nothing.

    Legal cases:

    1. One operation in a step that computes in float64 what is then cast to float32 is done in
       float32: a sum, difference, product or quotient of two, or a square root, of numbers that
       float32 holds; or none that rounds. By Figueroa (1995), rounding twice is innocuous there.
       Nothing else reads the float64.
    2. A state of float64 that steps read only cast to float32, and whose next value is one that
       float32 holds, is carried in float32. Readers outside read it cast back to float64.
    3. With ``exact=false``, a state of float32 of which the step computes the next value in
       float64 is carried in float64, and so is what the step computes of it; readers outside read
       it cast to float32. Of a state of float64, steps that compute in float32 compute in float64.

    Cases 1 and 2 keep all values, to the last bit. Derivatives that are taken afterwards add up in
    float32 what they added up in float64. A compiler with fast math, as PyTensor's Numba has it by
    default, may join operations in float32 that casts kept apart. Case 3 changes last digits. So no
    preset has this pass. It takes Scans and TracedLoops.

    Preconditions: the loop is neither batched nor trimmed, and no step works in place. In case 1,
    PyTensor would not make one sum or product of the operation and a neighbour, and a divisor is a
    power of two or varies: PyTensor multiplies by the reciprocal of others, rounded. In case 2,
    nobody outside may read the initial rows, unless float32 holds them.

    Out of scope: float16, mit_mots, and two operations that round before one cast, for which
    ``exact=false`` is.
    """

    name: ClassVar[str] = "match-precision"
    accepts_trimmed: ClassVar[bool] = False
    accepts_in_place: ClassVar[bool] = False

    exact: bool = True

    def rewrite(self, view: SlotView, context: PassContext) -> dict[Variable, Variable] | None:
        """Return replacements for all outputs, and for what reads rows of states."""
        if not any(map(_is_cast_node, view.op.fgraph.toposort())):
            return None
        names = context.names(view)
        mixed = {slot: _dtype(slot) for slot in view.slots if is_mixed(slot)}
        matched = match(view, context.clients, exact=self.exact)
        for slot in matched.carried:
            context.passed(view, Code.STATE_MATCHED, names[slot], dtype=_dtype(slot))
        for slot in matched.widened:
            context.passed(view, Code.STEPS_MATCHED, names[slot], dtype=DOUBLE)
        if matched.rounded:
            context.passed(view, Code.OPERATIONS_MATCHED, count=matched.rounded)
        for slot, dtype in mixed.items():
            if is_mixed(slot):
                why = matched.why.get(slot, Fact(Why.ROUNDS_TWICE))
                context.missed(view, Code.STATE_MIXED, why, names[slot], dtype=dtype)
        if not matched.is_any:
            return None
        replacements = view.rebuild()
        readers: dict[Variable, Variable] = {}
        for slot in matched.carried:
            for output in slot.outer_outputs:
                readers |= _read_cast(output, replacements.pop(output), context.clients)
        # Readers before what they read, which the index of a reader may read, too.
        return dict(reversed(readers.items())) | replacements


@dataclass(frozen=True, slots=True)
class Matched:
    """What `match` did to a view.

    Attributes
    ----------
    carried
        The states that have another dtype now.
    rounded
        How many operations are done in float32.
    widened
        The states of float64 that are computed in float64 now.
    why
        Why states stay as they are, where it is not that their values would be other ones.
    """

    carried: list[Slot] = field(default_factory=list)
    rounded: int = 0
    widened: list[Slot] = field(default_factory=list)
    why: dict[Slot, Reason] = field(default_factory=dict)

    @property
    def is_any(self) -> bool:
        """Whether anything changed."""
        return bool(self.carried or self.rounded or self.widened)


def is_mixed(slot: Slot) -> bool:
    """Whether a slot is a state whose next value is computed in another precision than it has."""
    return slot.kind in STATES and any(computed_in(v) is not None for v in slot.inner_outputs)


def matching_slots(view: SlotView, clients: Clients, *, exact: bool) -> set[int]:
    """Return the places of the mixed states that the pass mends; the view stays as it is."""
    if trimmed(view) or works_in_place(view):
        return set()
    work = view_of(view.node)
    match(work, clients, exact=exact)
    return {
        place
        for place, (before, after) in enumerate(zip(view.slots, work.slots, strict=True))
        if is_mixed(before) and not is_mixed(after)
    }


def match(view: SlotView, clients: Clients, *, exact: bool) -> Matched:
    """Make the states and the steps of a view match, and unfreeze it; it is not rebuilt."""
    view.unfreeze()
    if view.batch_ndim:
        return Matched(why=dict.fromkeys(view.slots, Fact(Why.LOOP_BATCHED)))
    body = FunctionGraph(outputs=view.inner_outputs(), clone=False)
    same = (SlotKind.NON_SEQ, SlotKind.CONSTANT)
    varying = {v for slot in view.slots if slot.kind not in same for v in slot.inner_inputs}
    matched = Matched(rounded=_round_once(body, varying))
    for slot in view.slots:
        if slot.kind not in _KINDS:
            matched.why[slot] = because(Why.KIND_LEFT, kind=slot.kind)
    _carry_in_single(view, body, matched, clients)
    if not exact:
        _carry_in_double(view, matched)
    return matched


def _round_once(body: FunctionGraph, varying: Collection[Variable]) -> int:
    """Do in float32 what rounds once before a cast to float32 (case 1)."""
    count = 0
    for node in body.toposort():
        if node not in body.apply_nodes or not _is_cast_node(node):
            continue
        (computed,), (cast,) = node.inputs, node.outputs
        if computed.type.dtype != DOUBLE or computed.owner is None:
            continue
        if not all(_is_cast_node(reader) for reader, _ in body.clients[computed]):
            continue
        # What was found before may be replaced by now.
        made = SingleEquivalents(varying).rounded(computed)
        if made is None or made.type != cast.type:
            continue
        if any(is_regrouped_by(made, reader) for reader, _ in body.clients[cast]):
            continue
        body.replace(cast, made, import_missing=True)
        count += 1
    return count


def _carry_in_single(
    view: SlotView, body: FunctionGraph, matched: Matched, clients: Clients
) -> None:
    """Carry in float32 the states that steps read as such (case 2)."""
    view.set_inner_outputs(list(body.outputs))
    carried = []
    for slot in view.slots:
        if slot.kind not in _KINDS or not isinstance(slot.outer_input.type, TensorType):
            continue
        (update,) = slot.inner_outputs
        readers = [node for state in slot.inner_inputs for node, _ in body.clients.get(state, ())]
        is_single = update.owner is not None and SingleEquivalents().same(update) is not None
        if _dtype(slot) != DOUBLE or not is_single or not all(map(_is_cast_node, readers)):
            continue
        if not _keeps_rows(view, slot, clients):
            matched.why[slot] = Fact(Why.INITIAL_READ)
            continue
        singles = [state.type.clone(dtype=SINGLE)() for state in slot.inner_inputs]
        for state, single in zip(slot.inner_inputs, singles, strict=True):
            for node, _ in list(body.clients.get(state, ())):
                body.replace(node.outputs[0], single, import_missing=True)
        slot.inner_inputs, slot.outer_input = singles, with_dtype(slot.outer_input, SINGLE)
        carried.append(slot)
    view.set_inner_outputs(list(body.outputs))
    for slot in carried:
        value = SingleEquivalents().same(slot.inner_outputs[0])
        assert value is not None
        slot.inner_outputs = [value]
    matched.carried.extend(carried)


def _keeps_rows(view: SlotView, slot: Slot, clients: Clients) -> bool:
    """Whether no reader outside can tell that the initial rows are rounded to float32."""
    lengths = Lengths(view.n_steps)
    start = slot.outer_input
    if slot.kind in (SlotKind.SIT_SOT, SlotKind.MIT_SOT):
        start = initial_rows(start, slot.n_initial, lengths)
    if SingleEquivalents().same(start) is not None:
        return True
    # A TracedLoop looks at its condition before the first step.
    runs = lengths.runs() and not (view.is_while and slot.kind is SlotKind.STATE)
    final = slot.outer_output if slot.kind is SlotKind.UNTRACED else slot.last
    if final is not None and clients(final) and not runs:
        return False
    if slot.kind is SlotKind.UNTRACED or slot.outer_output is None:
        return True
    return all(
        access.n_initial == 0
        or (access.is_last_row and runs)
        or isinstance(access.node.op, Shape | Shape_i)
        for access in accesses(view, slot, clients)
    )


def _carry_in_double(view: SlotView, matched: Matched) -> None:
    """Carry mixed states in float64, and compute in it what the step computes of them (case 3)."""
    mixed = [slot for slot in view.slots if slot.kind in _KINDS and is_mixed(slot)]
    mixed = [slot for slot in mixed if {_dtype(slot), *_computed(slot)} == {SINGLE, DOUBLE}]
    if not mixed:
        return
    body = FunctionGraph(outputs=view.inner_outputs(), clone=False)
    step = _StepInDouble()
    for slot in mixed:
        for state in slot.inner_inputs:
            if _dtype(slot) == SINGLE:
                step.doubles[state] = state.type.clone(dtype=DOUBLE)()
            else:
                casts = [n.outputs[0] for n, _ in body.clients.get(state, ()) if _is_cast_node(n)]
                step.doubles.update(dict.fromkeys(casts, state))
    for node in body.toposort():
        step.compute(node)
    for slot in view.outputs():
        if slot not in mixed:
            slot.inner_outputs = [step.same(v) for v in slot.inner_outputs]
            continue
        (update,) = slot.inner_outputs
        if _dtype(slot) == SINGLE:
            slot.inner_inputs = [step.doubles[state] for state in slot.inner_inputs]
            slot.outer_input = with_dtype(slot.outer_input, DOUBLE)
            slot.inner_outputs = [step.best(update.owner.inputs[0])]
            matched.carried.append(slot)
        else:
            slot.inner_outputs = [step.best(update)]
            if not is_mixed(slot):
                matched.widened.append(slot)
    if view.condition is not None:
        view.condition = step.same(view.condition)


@dataclass(frozen=True, slots=True)
class _StepInDouble:
    """The variables of a step that are computed otherwise: in float64, or of such variables."""

    doubles: dict[Variable, Variable] = field(default_factory=dict)
    others: dict[Variable, Variable] = field(default_factory=dict)

    def best(self, variable: Variable) -> Variable:
        """Return what is computed in place of a variable, in float64 if it is a float32."""
        return self.doubles.get(variable, self.others.get(variable, variable))

    def same(self, variable: Variable) -> Variable:
        """Return what is computed in place of a variable, in the dtype that it has."""
        double: Any = self.doubles.get(variable)
        if double is None:
            return self.others.get(variable, variable)
        single: Variable = pt.cast(double, SINGLE)
        return single

    def compute(self, node: Apply) -> None:
        """Compute the outputs of a node of what is computed in place of its inputs."""
        first = node.outputs[0]
        is_changed = any(v in self.doubles or v in self.others for v in node.inputs)
        if not is_changed or first in self.doubles:
            return
        if is_cast(first, DOUBLE) and node.inputs[0] in self.doubles:
            self.others[first] = self.doubles[node.inputs[0]]
            return
        made: Apply | None = None
        if _takes_double(node):
            made = node.op.make_node(*map(self.best, node.inputs))
        if made is None or not _are_doubles(node, made):
            made = node.clone_with_new_inputs([*map(self.same, node.inputs)])
        for old, new in zip(node.outputs, made.outputs, strict=True):
            (self.others if old.type == new.type else self.doubles)[old] = new


def _takes_double(node: Apply) -> bool:
    """Whether an Op computes in float64 if an operand is a float64."""
    op = node.op
    if isinstance(op, Elemwise):
        return not op.inplace_pattern and not isinstance(op.scalar_op, Cast | Composite)
    return isinstance(op, DimShuffle | CAReduce | Subtensor) or isinstance(core_op(op), Dot)


def _are_doubles(node: Apply, made: Apply) -> bool:
    """Whether the outputs are those of ``node``, or float64 in place of float32."""
    pairs = [(old.type, new.type) for old, new in zip(node.outputs, made.outputs, strict=True)]
    return all(new in (old, _in_double(old)) for old, new in pairs)


def _in_double(of: Any) -> Any:
    return of.clone(dtype=DOUBLE) if of.dtype == SINGLE else of


def _read_cast(old: Variable, new: Any, clients: Clients) -> dict[Variable, Variable]:
    """Return what replaces an output and its rows and slices: those of ``new``, cast.

    A cast of the whole output would keep all its rows alive.
    """
    replacements: dict[Variable, Variable] = {}
    waiting = [(old, new)]
    while waiting:
        old, new = waiting.pop()
        replacements[old] = pt.cast(new, old.type.dtype)
        for node, position in clients(old):
            if isinstance(node.op, Subtensor | DimShuffle) and not position:
                made = node.op.make_node(new, *node.inputs[1:])
                waiting.append((node.outputs[0], made.outputs[0]))
    return replacements


def _is_cast_node(node: Any) -> bool:
    """Whether a node casts a float64 to float32."""
    made: Any = next(iter(getattr(node, "outputs", ())), None)
    return made is not None and is_cast(made, SINGLE) and node.inputs[0].type.dtype == DOUBLE


def _dtype(slot: Slot) -> str:
    """Return the dtype of a state."""
    return str(getattr(slot.inner_inputs[0].type, "dtype", ""))


def _computed(slot: Slot) -> list[str | None]:
    return [computed_in(update) for update in slot.inner_outputs]
