"""Slots: the sequences, states, traced values and constants of a loop, of either design.

Passes, digests and reports work on the slots of a `SlotView`. `scanopt_cli.ir.scan_view` makes them
of PyTensor's Scan, and `scanopt_cli.loop.operator_base` of a TracedLoop.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op

from scanopt_cli.ir.written import keep, written


class SlotKind(StrEnum):
    """The category of a slot: those of a Scan, and then those of a TracedLoop."""

    SEQ = "seq"
    MIT_MOT = "mit_mot"
    MIT_SOT = "mit_sot"
    SIT_SOT = "sit_sot"
    UNTRACED = "untraced"
    NIT_SOT = "nit_sot"
    NON_SEQ = "non_seq"

    INDEX = "index"
    STATE = "state"
    TRACED = "traced"
    CONSTANT = "constant"


STATES = frozenset(
    {SlotKind.MIT_MOT, SlotKind.MIT_SOT, SlotKind.SIT_SOT, SlotKind.UNTRACED, SlotKind.STATE}
)
TRACED = frozenset({SlotKind.MIT_SOT, SlotKind.SIT_SOT, SlotKind.NIT_SOT})
WITH_ROWS = TRACED | {SlotKind.STATE, SlotKind.TRACED}
"""The kinds of slots of either design whose output holds a row of each step."""


@dataclass(slots=True, eq=False)
class InnerSlot:
    """The inner part of a slot; see `Slot`."""

    kind: SlotKind
    position: int
    taps: tuple[int, ...] = ()
    out_taps: tuple[int, ...] = ()
    inner_inputs: list[Variable] = field(default_factory=list)
    inner_outputs: list[Variable] = field(default_factory=list)
    argument: str | None = field(default=None, kw_only=True)
    former: SlotKind | None = field(default=None, kw_only=True)

    @property
    def has_input(self) -> bool:
        """Whether an input of the node belongs to the slot alone."""
        return self.kind not in (SlotKind.INDEX, SlotKind.TRACED)


@dataclass(slots=True, eq=False)
class Slot(InnerSlot):
    """One sequence, state, traced output or non-sequence of a Scan, with all its variables.

    Attributes
    ----------
    kind
        The category.
    position
        The position within its category in the viewed node; used for names only.
    taps
        Steps back (negative) at which a state is read; empty for all other kinds.
    out_taps
        The taps at which a step writes: ``(0,)`` except for a mit_mot.
    inner_inputs
        The inner inputs, one for each tap.
    inner_outputs
        The inner outputs, one for each out-tap.
    argument
        What the user's step calls it, if that is known.
    former
        Of a slot of a TracedLoop that was made of a Scan, the kind that it had there, if any.
    outer_input
        The sequence, the initial buffer of a state, the buffer length of a nit_sot, the value of a
        non-sequence.
    outer_output
        The node's output, ``None`` for sequences and non-sequences. Of a state of a TracedLoop, its
        trace.
    last
        The last value of a state of a TracedLoop, else ``None``.
    """

    outer_input: Variable = field(kw_only=True)
    outer_output: Variable | None = None
    last: Variable | None = None

    @classmethod
    def of(cls, inner: InnerSlot, outer_input: Variable) -> Slot:
        """Return the slot that ``outer_input`` feeds."""
        return cls(
            inner.kind,
            inner.position,
            inner.taps,
            inner.out_taps,
            inner.inner_inputs,
            inner.inner_outputs,
            argument=inner.argument,
            former=inner.former,
            outer_input=outer_input,
        )

    @classmethod
    def of_input(cls, kind: SlotKind, inner: Variable, outer: Variable) -> Slot:
        """Return a sequence, non-sequence or constant, which a step reads as ``inner``."""
        return cls(kind, 0, inner_inputs=[inner], outer_input=outer)

    @classmethod
    def of_trace(
        cls,
        inner: Variable,
        n_rows: Variable,
        output: Variable | None = None,
        *,
        kind: SlotKind = SlotKind.NIT_SOT,
    ) -> Slot:
        """Return a nit_sot or traced value: ``n_rows`` rows keep what ``inner`` is in each step.

        In the view of a node, ``output`` stands for its output until the loop is rebuilt.
        """
        return cls(kind, 0, (), (0,), [], [inner], output, outer_input=n_rows)

    @property
    def output(self) -> Variable:
        """The `outer_output` of a slot that has one."""
        assert self.outer_output is not None
        return self.outer_output

    @property
    def outer_outputs(self) -> list[Variable]:
        """The node's outputs that belong to the slot."""
        return [v for v in (self.last, self.outer_output) if v is not None]

    @property
    def n_initial(self) -> int:
        """The number of initial rows in the buffer of a mit_sot or sit_sot, or in a trace; or 0."""
        if self.kind in (SlotKind.MIT_SOT, SlotKind.SIT_SOT, SlotKind.STATE):
            return -min(self.taps)
        return 0

    @property
    def label(self) -> str:
        """A stable name within the Scan: the kind and the place in its category."""
        return "index" if self.kind is SlotKind.INDEX else f"{self.kind}[{self.position}]"


@dataclass(slots=True, eq=False)
class SlotView(ABC):
    """A node that applies a loop, as slots: a `ScanView`, or the view of a TracedLoop.

    Replace outer inputs, and call `rebuild`. Inner variables belong to the frozen body: before
    editing them, or adding or removing slots, `unfreeze` the view.
    """

    invariant_kind: ClassVar[SlotKind] = SlotKind.CONSTANT
    """The kind of the slots by which a step reads what is the same in each step."""

    node: Apply
    op: Any
    n_steps: Variable
    slots: list[Slot]
    condition: Variable | None
    batch_ndim: int = 0
    is_unfrozen: bool = False
    new_name: str | None = None

    @property
    def name(self) -> str:
        """The loop's own name."""
        return str(self.op.name)

    @property
    def is_while(self) -> bool:
        """Whether a condition may end the loop early."""
        return self.condition is not None

    def of_kind(self, *kinds: SlotKind) -> list[Slot]:
        """Return the slots of ``kinds``, in order."""
        return [slot for slot in self.slots if slot.kind in kinds]

    @property
    def index(self) -> Variable:
        """What the body of a TracedLoop or Loop reads as the number of the step."""
        return self.of_kind(SlotKind.INDEX)[0].inner_inputs[0]

    @abstractmethod
    def outputs(self) -> list[Slot]:
        """Return the slots that have an output, in the order of the inner outputs."""

    @property
    def counts(self) -> list[Variable]:
        """The outputs of the node that belong to no slot: how many steps were run."""
        return []

    @property
    def design(self) -> str:
        """What loops of this design are called: ``Scan``, ``TracedLoop``."""
        return type(self.op).__name__

    @abstractmethod
    def rebuild(self) -> dict[Variable, Variable]:
        """Apply a new loop made of the current slots.

        Returns a map from the old outer outputs of the remaining slots to the new ones. Outputs of
        removed slots have no entry.
        """

    def kept(self, op: Any, slots: Iterable[Slot | None]) -> Any:
        """Return a loop with ``slots``, in its order, that says where this one was written."""
        return keep(self.node, op, [None if slot is None else slot.argument for slot in slots])

    def inner_outputs(self) -> list[Variable]:
        """The inner outputs in the loop's order, the condition last."""
        computed = [variable for slot in self.outputs() for variable in slot.inner_outputs]
        return computed if self.condition is None else [*computed, self.condition]

    def set_inner_outputs(self, variables: list[Variable]) -> None:
        """Make a step compute ``variables``, in the order of `inner_outputs`."""
        computed = iter(variables)
        for slot in self.outputs():
            slot.inner_outputs = [next(computed) for _ in slot.inner_outputs]
        if self.condition is not None:
            self.condition = next(computed)

    def add_input(self, kind: SlotKind, inner: Variable, outer: Variable) -> Variable:
        """Let a step read ``outer`` as ``inner``, of a view that is unfrozen; return ``inner``."""
        self.slots.append(Slot.of_input(kind, inner, outer))
        return inner

    def unfreeze(self, substitute: Mapping[Variable, Variable] | None = None) -> None:
        """Replace the frozen inner variables by fresh, mutable ones.

        ``substitute`` maps inner inputs to what the body shall read in their place: another inner
        input of this view, or a constant. A substituted input keeps its slot, but has no reader.
        """
        self.is_unfrozen = True
        body = self.op.fgraph
        fresh = {variable: variable.type() for variable in body.inputs}
        replaced = {
            variable: fresh.get(replacement, replacement)
            for variable, replacement in (substitute or {}).items()
        }
        outputs = body.bind({**fresh, **replaced})
        unfrozen = dict(zip(body.outputs, outputs, strict=True))
        for slot in self.slots:
            slot.inner_inputs = [fresh[variable] for variable in slot.inner_inputs]
            slot.inner_outputs = [unfrozen[variable] for variable in slot.inner_outputs]
        if self.condition is not None:
            self.condition = unfrozen[self.condition]


def with_arguments(slots: list[InnerSlot], op: Op) -> list[InnerSlot]:
    """Give the slots of a loop the names that its step has for them, if they are known."""
    found = written(op)
    if found is not None and len(found.arguments) == len(slots):
        for slot, argument in zip(slots, found.arguments, strict=True):
            slot.argument = argument
    return slots


class HasSlots(Op):
    """A loop of another design than Scan's: it says itself what its slots are."""

    name: str | None

    def view(self, node: Apply) -> SlotView:
        """Return ``node``, which applies the loop, as slots."""
        raise NotImplementedError

    def inner_slots(self) -> list[InnerSlot]:
        """Return the slots of the loop without a node, in the order of `SlotView.slots`."""
        raise NotImplementedError

    @property
    def inner_condition(self) -> Variable | None:
        """The condition on which the loop goes on, if there is one."""
        raise NotImplementedError

    def output_name(self, position: int) -> str:
        """Return what an output of the loop is called."""
        raise NotImplementedError
