"""States that only add or multiply up what the steps compute, or that no step reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Set
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.scalar.basic import Mul
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.subtensor import IncSubtensor
from pytensor.tensor.type import TensorType

from scanopt_cli.analysis.accumulators import Term, added
from scanopt_cli.ir.indexing import indices_of
from scanopt_cli.ir.slots import Slot, SlotKind
from scanopt_cli.loop.running_product import RunningProduct

STATE_KINDS = (SlotKind.SIT_SOT, SlotKind.UNTRACED, SlotKind.STATE)
_FLOATS = ("float32", "float64")
_NARROW = ("int8", "int16", "int32", "uint8", "uint16", "uint32")
_NUMBERS = (*_FLOATS, *_NARROW, "int64", "uint64")


class Running(Enum):
    """How a state comes from what each step computes."""

    SUM = auto()
    PRODUCT = auto()
    LATEST = auto()
    ENTRIES = auto()


@dataclass(frozen=True, slots=True, eq=False)
class RunningState:
    """A state that is, after each step, the sum or product of ``terms`` so far, or the latest.

    Of an array to which each step adds entries, ``writes`` are the nodes that add them, in order.
    """

    slot: Slot
    how: Running
    terms: tuple[Term, ...]
    writes: tuple[Apply, ...] = ()

    @property
    def parts(self) -> list[Variable]:
        """What of a step has to be known at all steps."""
        added = [v for node in self.writes for v in node.inputs[1:]]
        return [term.value for term in self.terms] + added

    def trace(self, start: Any, rows: Any) -> Any:
        """Return the initial value and those after each step, given the rows of all steps."""
        every = pt.join(0, pt.expand_dims(start, 0), rows)
        if self.how is Running.LATEST:
            return every
        dtype = every.type.dtype
        if dtype in _NARROW:  # NumPy sums these in int64; cast back, the sum wraps around alike
            every = every.astype("int64")
        total = pt.cumsum(every, axis=0) if self.how is Running.SUM else running_product(every)
        return total.astype(dtype)

    def last(self, start: Any, rows: Any) -> Any:
        """Return the value after the last step."""
        if self.how is not Running.SUM:
            return self.trace(start, rows)[-1]
        dtype = start.type.dtype
        if dtype in _NARROW:
            rows = rows.astype("int64")
        return start + pt.sum(rows, axis=0).astype(dtype)


def running_product(rows: Any) -> Any:
    """Return the products of the first rows, for each number of rows."""
    return RunningProduct(axis=0)(rows)


def running_state(
    slot: Slot, known: Set[Variable], counts: Counter[Variable]
) -> RunningState | None:
    """Return a state whose values follow from what is ``known`` at all steps, else ``None``."""
    if slot.taps != (-1,):
        return None
    state, update = slot.inner_inputs[0], slot.inner_outputs[0]
    if not (isinstance(state.type, TensorType) and isinstance(update.type, TensorType)):
        return None
    if not (is_number(state) and _is_alike(state, update)):
        return None
    if update in known:
        return RunningState(slot, Running.LATEST, (Term(update),))
    writes = _writes(state, update, known, counts)
    if writes:
        return RunningState(slot, Running.ENTRIES, (), tuple(writes))
    # The state and its update may be read elsewhere: then their rows are.
    uses = {v: counts[v] for v in (state, update)}
    counts.update({v: 1 - count for v, count in uses.items()})
    terms = added(state, update, counts)
    counts.update({v: count - 1 for v, count in uses.items()})
    if terms and all(_is_known(term.value, known) for term in terms):
        return RunningState(slot, Running.SUM, tuple(terms))
    factor = _factor(state, update)
    if factor is not None and _is_known(factor, known):
        return RunningState(slot, Running.PRODUCT, (Term(factor),))
    return None


def _writes(
    state: Variable, update: Any, known: Set[Variable], counts: Counter[Variable]
) -> list[Apply]:
    """Return the nodes by which a step adds entries to a state that it does not read, in order."""
    found: list[Apply] = []
    while update is not state:
        node = update.owner
        if node is None or counts[update] != 1 or not isinstance(node.op, IncSubtensor):
            return []
        indices = indices_of(node)
        is_added = not node.op.set_instead_of_inc and not any(isinstance(i, slice) for i in indices)
        if not is_added or not all(_is_known(v, known) for v in node.inputs[1:]):
            return []
        if any(index.type.dtype == "uint64" for index in indices):
            return []
        found.insert(0, node)
        update = node.inputs[0]
    return found if counts[state] == 1 else []


def is_number(variable: Any) -> bool:
    """Whether a variable is an array of numbers that NumPy adds up as a loop does."""
    return variable.type.dtype in _NUMBERS


def _is_known(variable: Variable, known: Set[Variable]) -> bool:
    return variable in known or isinstance(variable, Constant)


def _is_alike(one: Any, other: Any) -> bool:
    """Whether two arrays have one dtype, and known lengths of 1 along the same axes."""
    return bool(
        one.type.dtype == other.type.dtype and one.type.broadcastable == other.type.broadcastable
    )


def _factor(state: Variable, update: Variable) -> Variable | None:
    """Return the one factor by which a float state is multiplied."""
    node = update.owner
    if node is None or not isinstance(node.op, Elemwise):
        return None
    if not isinstance(node.op.scalar_op, Mul) or len(node.inputs) != 2:
        return None
    others = [v for v in node.inputs if v is not state]
    is_float: Any = state.type
    if len(others) != 1 or is_float.dtype not in _FLOATS:
        return None
    return others[0] if _is_alike(others[0], state) else None
