"""A loop of its own for a recursion that reads no data, and the loop that reads its traces."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.scalar.basic import ScalarType
from pytensor.tensor.basic import tensor_from_scalar
from pytensor.tensor.type import lscalar

from scanopt_cli.ir.graph import substituted
from scanopt_cli.ir.slots import Slot, SlotKind
from scanopt_cli.ir.written import Names
from scanopt_cli.loop import Body, TracedLoop
from scanopt_cli.loop.operator_base import LoopView
from scanopt_cli.loop.trace_rows import row


class OwnLoop:
    """The loop of a recursion that reads no data, and its traces.

    It carries ``states`` of the view of a loop, and traces the variables ``read``, states before a
    step among them. ``n_steps`` is the most steps; ``condition`` says when to go on.
    """

    def __init__(
        self,
        view: LoopView,
        states: Sequence[Slot],
        read: Sequence[Variable],
        n_steps: Variable,
        condition: Variable | None = None,
    ) -> None:
        olds = [slot.inner_inputs[0] for slot in states]
        constants = view.of_kind(SlotKind.CONSTANT)
        values = [v for v in read if v not in olds]
        body = Body(
            index=lscalar("index"),
            states=olds,
            next_states=[slot.inner_outputs[0] for slot in states],
            traced=values,
            condition=condition,
        )
        fed = [slot for slot in (*states, *constants) if slot.former is not None]
        names = Names(
            view.node,
            {s.inner_inputs[0]: s.argument for s in (*states, *constants) if s.argument},
            {slot.inner_inputs[0]: slot.former.value for slot in fed if slot.former},
        )
        made = TracedLoop.over(
            n_steps,
            body,
            [slot.outer_input for slot in states],
            {slot.inner_inputs[0]: slot.outer_input for slot in constants},
            name=view.op.name,
            like=names,
        )
        n = len(states)
        self.n_done: Any = made[-1]
        self._rows = dict(zip((*olds, *values), made[n:-1], strict=True))
        self._olds = set(olds)

    def trace(self, variable: Variable) -> Any:
        """Return the trace of a variable: of a state, the rows before each step, and the last."""
        return self._rows[variable]

    def is_state(self, variable: Variable) -> bool:
        """Whether a variable is a state before the step."""
        return variable in self._olds


def reading_loop(
    view: LoopView,
    own: OwnLoop,
    states: Mapping[Slot, Variable],
    read: Mapping[Variable, Variable],
    given: Sequence[Any],
    place: Callable[..., Any],
) -> dict[Variable, Variable]:
    """Return what replaces the outputs of a loop, whose steps read the rows of another one.

    Parameters
    ----------
    view
        The loop, unfrozen.
    own
        The loop that computes ``states``.
    states
        Which variable of that loop each state is.
    read
        Which variable of that loop each variable is that a step reads.
    given
        What ``place`` needs besides, which does not change from step to step.
    place
        Called with the number of a row, with whether it is of a state, and with ``given``, or what
        stands for it in a step: returns the row of the trace.
    """
    node_outputs: dict[Variable, Variable] = {}
    n_steps: Any = view.n_steps
    for slot, variable in states.items():
        trace = own.trace(variable)
        last = row(trace, place(n_steps, True, *given), slot.inner_inputs[0].type)
        if slot.last is not None:
            node_outputs[slot.last] = last
        rows = _rows(trace, place, n_steps + 1, True, given)
        node_outputs[slot.output] = rows
    traced = [slot for slot in view.of_kind(SlotKind.TRACED) if slot.inner_outputs[0] in read]
    for slot in traced:
        variable = read[slot.inner_outputs[0]]
        is_state = own.is_state(variable)
        node_outputs[slot.output] = _rows(own.trace(variable), place, n_steps, is_state, given)
    view.slots = [slot for slot in view.slots if slot not in states and slot not in traced]
    if not view.outputs() and not view.is_while:
        return node_outputs | dict.fromkeys(view.counts, view.n_steps)
    index: Any = view.index
    if isinstance(index.type, ScalarType):
        index = tensor_from_scalar(index)
    inside = [view.add_input(SlotKind.CONSTANT, v.type(), v) for v in given]
    values: dict[Variable, Variable] = {}
    for inner, variable in read.items():
        trace = own.trace(variable)
        rows = view.add_input(SlotKind.CONSTANT, trace.type(), trace)
        values[inner] = row(rows, place(index, own.is_state(variable), *inside), inner.type)
    view.set_inner_outputs(substituted(view.inner_outputs(), values, copies_all=False))
    return node_outputs | view.rebuild()


def _rows(
    trace: Any, place: Callable[..., Any], count: Any, is_state: bool, given: Sequence[Any]
) -> Any:
    """Return so many rows of a trace, each from its place; some may be from the same one."""
    if not given:
        return trace[:count]
    return trace[place(pt.arange(count), is_state, *given)]
