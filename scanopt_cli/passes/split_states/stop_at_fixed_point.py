"""Stop a recursion that reads no data once it has converged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, ClassVar

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.scalar.basic import ScalarType
from pytensor.tensor.basic import tensor_from_scalar

from scanopt_cli.analysis.closed_recursions import ClosedPart, closed_recursions
from scanopt_cli.ir.slots import Slot, SlotKind
from scanopt_cli.loop.operator_base import LoopView
from scanopt_cli.loop.trace_rows import is_continuous
from scanopt_cli.passes.split_states.parts import OwnLoop, reading_loop
from scanopt_cli.pipeline.contract import PassContext, check_from_zero
from scanopt_cli.pipeline.loop_passes import TracedLoopPass
from scanopt_cli.remarks import Code, Reason, Why, because


@dataclass(frozen=True)
class StopAtFixedPoint(TracedLoopPass):
    """Stop a recursion that reads no data at its fixed point, such as the covariances of a filter.

    **It changes values**, by about the tolerance, so it is in no preset: ask for it, and say what
    tolerance is small enough. It takes TracedLoops; run ``scan-to-loop`` first.

    Legal cases:

    1. States that depend on each other and on constants alone, such as the covariance of a Kalman
       filter, go to a loop of their own. It ends after the first step in which ``|new - old| <=
       tolerance * max(1, |new|)`` for every entry of every one of them, or after as many steps as
       before. NaN and infinity never count as converged. The steps of the loop read the row of
       their number, or the last one.
    2. What a step computes of such states and of constants alone (the gain of the filter, the
       logarithm of a variance) goes with them, and is computed no more often than they are.
    3. So does what is traced of such states.

    A step that reads row ``t`` of a state's trace reads row ``min(t, s)``, where ``s`` is how many
    steps the loop of the states ran; of what a step computes, it is row ``min(t, s - 1)``. A loop
    of no steps reads no row, and its states are the initial ones.

    Derivatives: those taken before this pass stay the derivatives of the whole recursion, computed
    from rows that differ by about the tolerance. Those taken after it are those of the shorter
    recursion: what reads the last row in any later step is pulled back through the ``s`` steps that
    were run. They lack the terms of the steps that were not run, which are as small as what is
    left of a change of the initial state after ``s`` steps. Take them at a small tolerance: the
    state may change by less than the tolerance while its derivative still grows.

    Preconditions: the states are arrays or numbers of floats. No condition may end the loop, no
    step works in place, and an update reads no index, so no sequence; no state that reads data; and
    draws no random numbers. The states keep their shapes: rows of different shapes are an error
    once the pass traces them. An error that a later step would raise does not occur.

    Out of scope: states that read converged ones but converge by themselves later, and recursions
    that come to alternate between several values.
    """

    name: ClassVar[str] = "stop-at-fixed-point"
    accepts_in_place: ClassVar[bool] = False
    sweeps: ClassVar[int] = 8
    tolerance: float = 1e-12
    """by how much an entry may change in a step, absolutely below 1 and relatively above"""

    def __post_init__(self) -> None:
        """Check the option."""
        check_from_zero(tolerance=self.tolerance)

    def rewrite(self, view: LoopView, context: PassContext) -> dict[Variable, Variable] | None:
        """Return replacements for all outputs, from a loop that reads those of shorter ones."""
        names = context.names(view)
        for states in closed_recursions(view):
            shown = [names[slot] for slot in states]
            reason = _obstacle(view, states)
            if view.is_while and len(states) == len(view.of_kind(SlotKind.STATE)):
                continue  # as this pass has left it, perhaps
            if reason is not None:
                context.missed(view, Code.STATES_RUN_ON, reason, *shown)
                continue
            context.passed(view, Code.STATES_STOPPED, *shown, tolerance=f"{self.tolerance:g}")
            return self._split(view, states)
        return None

    def _split(self, view: LoopView, states: Sequence[Slot]) -> dict[Variable, Variable]:
        view.unfreeze()
        part = ClosedPart.of(view, states, view.of_kind(SlotKind.CONSTANT))
        changes = [_changes(slot, self.tolerance) for slot in states]
        goes_on = reduce(pt.or_, changes)
        own = OwnLoop(view, states, part.read, view.n_steps, goes_on)
        return reading_loop(
            view,
            own,
            {slot: slot.inner_inputs[0] for slot in states},
            {v: v for v in part.read},
            [own.n_done],
            _place,
        )


def _place(index: Any, is_state: bool, n_done: Any) -> Any:
    """Return which row to read in a step: that of its number, or the last one."""
    return pt.minimum(index, n_done if is_state else n_done - 1)


def _obstacle(view: LoopView, states: Sequence[Slot]) -> Reason | None:
    """Return why a recursion cannot stop, ``None`` if it can."""
    if view.is_while:
        return because(Why.LOOP_STOPS)
    if not all(is_continuous(slot.inner_inputs[0]) for slot in states):
        return because(Why.NO_FLOATS)
    return None


def _changes(slot: Slot, tolerance: float) -> Any:
    """Return whether a step changes a state by more than the tolerance, in any entry."""
    old, new = (_as_array(v) for v in (slot.inner_inputs[0], slot.inner_outputs[0]))
    dtype = abs(new).type.dtype
    most = np.asarray(tolerance, dtype) * pt.maximum(np.asarray(1, dtype), abs(new))
    change = abs(new - old)
    # An infinite change is no more than an infinite bound, and NaN compares as false.
    is_near = pt.and_(pt.le(change, most), pt.lt(change, np.asarray(np.inf, dtype)))
    return pt.invert(pt.all(is_near))


def _as_array(variable: Any) -> Any:
    return tensor_from_scalar(variable) if isinstance(variable.type, ScalarType) else variable
