"""A loop, and one that runs its steps from the last to the first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import io_toposort
from pytensor.scalar.math import Sigmoid
from pytensor.tensor.basic import MakeVector
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Dot, exp
from pytensor.tensor.shape import Reshape
from pytensor.tensor.subtensor import Subtensor
from pytensor.tensor.type import DenseTensorType, TensorType

from scanopt_cli.analysis.accesses.row_ranges import RowRange
from scanopt_cli.analysis.affine import ZERO
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.ir.indexing import indices_of
from scanopt_cli.ir.slots import Slot, SlotKind
from scanopt_cli.loop.costs import is_costly
from scanopt_cli.loop.operator_base import LoopView
from scanopt_cli.passes.keep_values.row_index import Index, StepRow, base, n_rows, place, through
from scanopt_cli.passes.keep_values.value_numbers import ValueNumbers, dimensions


@dataclass(slots=True)
class LoopPair:
    """A forward and a backward loop, whose values have equal numbers if they are equal.

    A value of the backward loop's step ``i`` is compared with one of the forward loop's step
    ``n - 1 - i``.
    """

    forward: LoopView
    backward: LoopView
    lengths: Lengths
    _values: ValueNumbers = field(default_factory=ValueNumbers)
    _of: dict[Variable, int | None] = field(default_factory=dict)
    _computed: dict[int, Variable] = field(default_factory=dict)
    _found: dict[Variable, int] = field(default_factory=dict)
    _entries: dict[tuple[int, Index], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Take the bodies apart, and number the values of both."""
        self.forward.unfreeze()
        self.backward.unfreeze()
        self._entries = _states_of_entries(list(self.forward.of_kind(SlotKind.STATE)))
        # In this order, the number of a variable needs those of its operands only.
        for view in (self.forward, self.backward):
            for node in io_toposort([], view.inner_outputs()):
                for variable in chain(node.inputs, node.outputs):
                    self._of[variable] = self._number(variable, view)

    def repeated(self) -> list[Variable]:
        """Return the variables of the forward step to keep, and remember what they replace."""
        for node in io_toposort([], self.forward.inner_outputs()):
            for output in node.outputs:
                self._remember(self._of[output], output)
            if _is_logistic(node):
                x: Any = node.inputs[0]
                number = self._exponential(node)
                if number not in self._computed:
                    self._remember(number, exp(-x))
        seen: set[Variable] = set()
        waiting = self.backward.inner_outputs()
        while waiting:
            variable = waiting.pop()
            if variable in seen or variable.owner is None:
                continue
            seen.add(variable)
            number = self._of[variable]
            if number in self._computed and _is_dear(variable):
                self._found[variable] = number
            else:
                waiting += variable.owner.inputs
        return list({i: self._computed[i] for i in self._kept()}.values())

    def rewritten(self) -> dict[Variable, Variable]:
        """Return replacements: the forward loop traces the values, the backward one reads them."""
        kept = {number: _without_units(self._computed[number]) for number in self._kept()}
        numbers = [i for i, v in kept.items() if not v.type.ndim]
        rows: dict[int, Any] = {i: v for i, v in kept.items() if v.type.ndim}
        together = -1
        if numbers:
            rows[together] = MakeVector("float64")(*(kept[i] for i in numbers))
        traces = {i: self._traced(row) for i, row in rows.items()}
        forward = self.forward.rebuild()
        made = {i: forward.pop(trace) for i, trace in traces.items()}
        (index,) = next(iter(self.backward.of_kind(SlotKind.INDEX))).inner_inputs
        read: dict[int, Any] = {i: self._reversed(trace)[index] for i, trace in made.items()}
        read |= {number: read[together][i] for i, number in enumerate(numbers)}
        reads = {old: _like(old, self._read(old, read)) for old in self._found}
        results = graph_replace(self.backward.inner_outputs(), reads, strict=False)
        self.backward.set_inner_outputs(results)
        # The backward loop first: its operands are then those of the new forward loop.
        return self.backward.rebuild() | forward

    def _kept(self) -> list[int]:
        """Return the numbers of the values to keep, each once."""
        numbers = dict.fromkeys(self._found.values())
        for variable, number in self._found.items():
            if self._exponential(variable.owner) in numbers:
                numbers.pop(number, None)
        return list(numbers)

    def _read(self, variable: Variable, read: dict[int, Any]) -> Any:
        """Return what replaces a variable of the backward step, of the values that are read."""
        number = self._found[variable]
        exponential = self._exponential(variable.owner)
        return 1 / (1 + read[exponential]) if exponential in read else read[number]

    def _traced(self, row: Variable) -> Variable:
        """Let the forward loop trace a value."""
        kind: Any = row.type
        trace: Variable = TensorType(kind.dtype, shape=(None, *kind.shape))()
        n_steps = self.forward.n_steps
        slot = Slot(SlotKind.TRACED, -1, (), (0,), [], [row], trace, outer_input=n_steps)
        self.forward.slots.append(slot)
        return trace

    def _reversed(self, trace: Any) -> Any:
        """Let the backward loop read the rows of a trace, the last one first."""
        return self.backward.add_input(SlotKind.CONSTANT, trace.type(), trace[::-1])

    def _remember(self, number: int | None, variable: Variable) -> None:
        if number is not None and _is_dear(variable):
            self._computed.setdefault(number, variable)

    def _exponential(self, node: Any) -> int | None:
        """Return the number of ``exp(-x)``, of a node that is the logistic function of ``x``."""
        operand = self._of.get(node.inputs[0]) if _is_logistic(node) else None
        return None if operand is None else self._values.exponential(node, operand)

    def _number(self, variable: Any, view: LoopView) -> int | None:
        """Return the number of a variable, ``None`` if it is not known what it is."""
        if variable in self._of:
            return self._of[variable]
        if isinstance(variable, Constant):
            return self._values.literal(variable)
        node = variable.owner
        if not isinstance(variable.type, DenseTensorType):
            return None
        if node is None or isinstance(node.op, Subtensor):
            return self._leaf(variable, view)
        operands = [self._number(v, view) for v in node.inputs]
        known = [number for number in operands if number is not None]
        if len(known) < len(operands):
            return None
        return self._values.made(node, node.outputs.index(variable), known)

    def _leaf(self, variable: Any, view: LoopView) -> int | None:
        """Return the number of what a step reads."""
        index: Index = ()
        ndim = len(dimensions(variable))
        while variable.owner is not None and isinstance(variable.owner.op, Subtensor):
            own = [place(part, view, self.lengths) for part in indices_of(variable.owner)]
            known = [part for part in own if part is not None]
            if len(known) < len(own):
                return None
            index = (*known, *index)
            variable = variable.owner.inputs[0]
            while variable.owner is not None and isinstance(variable.owner.op, DimShuffle):
                moved = through(variable.owner, index)
                if moved is None:
                    return None
                index, variable = moved, variable.owner.inputs[0]
        for slot in chain(view.of_kind(SlotKind.STATE), view.of_kind(SlotKind.CONSTANT)):
            if slot.inner_inputs[0] is variable:
                key = self._of_slot(slot, index, view)
                return None if key is None else self._values.leaf(*key, ndim)
        return None

    def _of_slot(self, slot: Slot, index: Index, view: LoopView) -> tuple[Any, ...] | None:
        """Return what identifies the entries at an index of what a loop reads."""
        is_forward = view is self.forward
        if slot.kind is SlotKind.STATE:
            # A state of the backward loop is nothing that the forward loop has.
            is_known = is_forward and not any(isinstance(part, StepRow) for part in index)
            return self._of_state(slot, index) if is_known else None
        source, parts, slices = base(slot.outer_input, index)
        if not any(isinstance(part, StepRow) for part in parts):
            return ("constant", source, parts)
        row, *rest = parts
        if not isinstance(row, StepRow) or any(isinstance(part, StepRow) for part in rest):
            return None
        rows = RowRange(ZERO, n_rows(source, self.forward, self.lengths))
        for part in slices:
            cut = rows.cut(part, self.lengths)
            if cut is None:
                return None
            rows = cut
        row = row.within(rows)
        if row.is_falling is is_forward:
            return None
        # Step i of the backward loop undoes step n - 1 - i of the forward loop.
        ahead = row.offset if is_forward else row.offset - self.lengths.steps + 1
        for state in self.forward.of_kind(SlotKind.STATE):
            if state.outer_output is source and ahead == ZERO:
                return self._of_state(state, tuple(rest))
        return ("row", source, ahead, tuple(rest))

    def _of_state(self, slot: Slot, index: Index) -> tuple[Any, ...]:
        """Return what identifies the entries at an index of a state of the forward loop."""
        entry = self._entries.get((slot.position, index))
        return ("state", slot.position, index) if entry is None else ("state", entry, ())


def _states_of_entries(states: Sequence[Slot]) -> dict[tuple[int, Index], int]:
    """Return which entries of states are states of their own, with the same values in all steps."""
    numbers: dict[Variable, list[Slot]] = {}
    for slot in states:
        numbers.setdefault(slot.inner_outputs[0], []).append(slot)
    found = {}
    for slot in states:
        made: Any = slot.inner_outputs[0]
        shape: Any = made.type.shape if isinstance(made.type, DenseTensorType) else (None,)
        if isinstance(made.owner_op, Reshape):
            made = made.owner.inputs[0]
        if not isinstance(made.owner_op, MakeVector) or None in shape:
            continue
        for index, entry in zip(np.ndindex(*shape), made.owner.inputs, strict=True):
            for own in numbers.get(entry, ()):
                if base(own.outer_input, ()) == base(slot.outer_input, index):
                    found[slot.position, index] = own.position
    return found


def _is_logistic(node: Any) -> bool:
    return (
        node is not None
        and isinstance(node.op, Elemwise)
        and isinstance(node.op.scalar_op, Sigmoid)
        and node.inputs[0].type.dtype == "float64"
    )


def _is_dear(variable: Any) -> bool:
    """Whether a value is computed by a function that takes long."""
    op: Any = variable.owner_op
    if not isinstance(variable.type, DenseTensorType) or variable.type.dtype != "float64":
        return False
    return is_costly(op) or isinstance(op, Dot)


def _without_units(value: Any) -> Any:
    """Return an array without its dimensions of one entry."""
    kept = dimensions(value)
    return value if len(kept) == value.type.ndim else value.dimshuffle(kept)


def _like(old: Any, new: Any) -> Any:
    """Return an array with the dimensions of one entry that ``old`` has."""
    places = {axis: i for i, axis in enumerate(dimensions(old))}
    whole = new.dimshuffle([places.get(i, "x") for i in range(old.type.ndim)])
    return old.type.filter_variable(whole, allow_convert=True)
