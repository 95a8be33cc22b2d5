"""Evaluates graphs of constants with loops in them, step by step, within bounds.

Only Ops that are safe on any value are evaluated, those that `scanopt_cli.ir.folding` lets PyTensor
fold; loops and the graphs in `OpFromGraph` are walked through, node by node. So no random draw, no
Op with a state and no Op of another package is ever run, and nothing takes longer than its bounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.scalar.basic import ScalarType
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.type import DenseTensorType

from scanopt_cli.analysis.buffers import is_whole
from scanopt_cli.analysis.initial_buffers import initial_rows
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.ir.folding import MOST, work_on
from scanopt_cli.ir.scan_view import ScanView, is_loop, view_of
from scanopt_cli.ir.slots import Slot, SlotKind, SlotView
from scanopt_cli.loop.operator_base import LoopView
from scanopt_cli.remarks import Reason, Why, because

_MOST_NODES = 20_000
"""How many nodes are evaluated for one loop: a node of a step counts once in each step."""
_MOST_NUMBERS = 1 << 22
"""How many numbers they may read and make in all."""


class NotEvaluatedError(Exception):
    """A graph is not evaluated; ``reason`` says why, if it depends on constants alone."""

    def __init__(self, reason: Reason | None = None) -> None:
        super().__init__()
        self.reason = reason


class Evaluator:
    """Evaluates variables that depend on constants alone."""

    def __init__(self) -> None:
        self._nodes_left = _MOST_NODES
        self._numbers_left: float = _MOST_NUMBERS
        self._bodies: dict[Apply, _Body] = {}

    def values(
        self, outputs: Sequence[Variable], known: Mapping[Variable, Any] | None = None
    ) -> list[Any]:
        """Return the values of ``outputs``, given those that are ``known``.

        Raises
        ------
        NotEvaluatedError
            If they are not evaluated. Computing them may raise any other error.
        """
        known = known or {}
        order = self._order(outputs, known)
        self._check(len(order))
        return self._run(order, outputs, known)

    def _run(
        self, order: Sequence[Apply], outputs: Sequence[Variable], known: Mapping[Variable, Any]
    ) -> list[Any]:
        found = dict(known)
        self._nodes_left -= len(order)
        for node in order:
            for variable in self._reads(node):
                if isinstance(variable, Constant):
                    found[variable] = variable.data
            found.update(zip(node.outputs, self._computed(node, found), strict=True))
        return [v.data if isinstance(v, Constant) else found[v] for v in outputs]

    def _check(self, nodes: int) -> None:
        """Check that so many nodes can be evaluated, before the first of them is."""
        if nodes > self._nodes_left:
            raise NotEvaluatedError(because(Why.EVALUATION_LONG, operations=_MOST_NODES))

    def _computed(self, node: Apply, known: Mapping[Variable, Any]) -> Sequence[Any]:
        if is_loop(node):
            return self._loop(self._bodies[node], known)
        values = [known[variable] for variable in node.inputs]
        # A class of another package may compute something else.
        if isinstance(node.op, OpFromGraph) and type(node.op).perform is OpFromGraph.perform:
            inner = node.op.fgraph
            return self.values(inner.outputs, dict(zip(inner.inputs, values, strict=True)))
        if isinstance(node.op, Blockwise) and not node.op.batch_ndim(node):
            node = node.op.core_op.make_node(*node.inputs)
        work = work_on(node, values)
        if not math.isfinite(work) or node.op.destroy_map:
            raise NotEvaluatedError
        self._numbers_left -= work
        if work > MOST or self._numbers_left < 0:
            raise NotEvaluatedError(because(Why.EVALUATION_LONG, operations=_MOST_NODES))
        storage: list[list[Any]] = [[None] for _ in node.outputs]
        node.op.perform(node, values, storage)
        return [cell[0] for cell in storage]

    def _loop(self, body: _Body, known: Mapping[Variable, Any]) -> Sequence[Any]:
        n_steps = int(known[body.view.n_steps])
        if n_steps < 1:  # whose rows may have no shape
            raise NotEvaluatedError
        if body.order is None:
            body.order = self._order(body.outputs, dict.fromkeys(body.inputs))
        self._check(n_steps * len(body.order))
        run = _ScanRun(body, known) if isinstance(body.view, ScanView) else _LoopRun(body, known)
        for step in range(n_steps):
            values = self._run(body.order, body.outputs, run.inputs(step))
            if run.is_done_after(step, values):
                break
        found = run.found()
        return [found[output] for output in body.view.node.outputs]

    def _reads(self, node: Apply) -> Iterable[Variable]:
        """Return what has to be known before a node is evaluated."""
        if not is_loop(node):
            return node.inputs
        if node not in self._bodies:
            self._bodies[node] = _Body(node)
        body = self._bodies[node]
        return (body.view.n_steps, *body.starts.values())

    def _order(self, outputs: Sequence[Variable], known: Mapping[Variable, Any]) -> list[Apply]:
        """Return the nodes behind ``outputs`` so that each comes behind those that it reads."""
        order: dict[Apply, None] = {}
        waiting = [(variable, False) for variable in reversed(outputs)]
        while waiting:
            variable, is_ready = waiting.pop()
            node = variable.owner
            if variable in known or isinstance(variable, Constant) or node in order:
                continue
            if node is None or not isinstance(variable.type, DenseTensorType | ScalarType):
                raise NotEvaluatedError
            if is_ready:
                order[node] = None
            else:
                waiting.append((variable, True))
                waiting += [(read, False) for read in self._reads(node)]
        return list(order)


class _Body:
    """A loop, with what has to be known before it runs.

    Of traced states of a Scan these are the initial rows: the room for other rows in their buffers
    has no values.
    """

    def __init__(self, node: Apply) -> None:
        view = self.view = view_of(node)
        if view.batch_ndim or (isinstance(view, LoopView) and not view.is_traced):
            raise NotEvaluatedError
        lengths = Lengths(view.n_steps)
        self.starts: dict[Slot, Variable] = {}
        for slot in view.slots:
            if not is_whole(view, slot, lengths):
                raise NotEvaluatedError
            if slot.kind in (SlotKind.SIT_SOT, SlotKind.MIT_SOT):
                self.starts[slot] = initial_rows(slot.outer_input, slot.n_initial, lengths)
            elif slot.kind not in (SlotKind.NIT_SOT, SlotKind.TRACED, SlotKind.INDEX):
                self.starts[slot] = slot.outer_input
        view.unfreeze()
        self.inputs = [variable for slot in view.slots for variable in slot.inner_inputs]
        self.outputs = view.inner_outputs()
        self.order: list[Apply] | None = None


class _Run:
    """The values of a loop at one step after the other."""

    def __init__(self, body: _Body, known: Mapping[Variable, Any]) -> None:
        self.view: SlotView = body.view
        self.states: dict[Slot, Any] = {}
        self.rows: dict[Slot, list[Any]] = {}
        self.fixed: dict[Variable, Any] = {}
        self.n_done = 0
        for slot in body.view.slots:
            if slot in body.starts:
                self._begin(slot, known[body.starts[slot]])
            elif slot.kind in (SlotKind.NIT_SOT, SlotKind.TRACED):
                self.rows[slot] = []

    def _begin(self, slot: Slot, start: Any) -> None:
        raise NotImplementedError

    def inputs(self, step: int) -> dict[Variable, Any]:
        """Return what a step reads."""
        raise NotImplementedError

    def found(self) -> dict[Variable, Any]:
        """Return the outputs of the loop."""
        raise NotImplementedError

    def is_done_after(self, step: int, values: Sequence[Any]) -> bool:
        """Take what a step computes, and return whether it was the last one."""
        self.n_done = step + 1
        computed = iter(values)
        for slot in self.view.outputs():
            for tap in slot.out_taps:
                self._write(slot, tap, next(computed), step)
        return self.view.is_while and self._stops(bool(next(computed)))

    def _write(self, slot: Slot, tap: int, value: Any, step: int) -> None:  # noqa: ARG002
        if slot in self.rows:
            _append(self.rows[slot], value)
        if slot in self.states:
            self.states[slot] = value

    def _stops(self, condition: bool) -> bool:
        return condition

    def traces(self) -> dict[Variable, Any]:
        """Return the rows of states and of traced values."""
        return {slot.output: np.stack(rows) for slot, rows in self.rows.items()}


class _ScanRun(_Run):
    """A Scan whose buffers hold all rows."""

    def _begin(self, slot: Slot, start: Any) -> None:
        match slot.kind:
            case SlotKind.MIT_SOT | SlotKind.SIT_SOT:
                self.rows[slot] = list(start[: slot.n_initial])
                if len(self.rows[slot]) < slot.n_initial:
                    raise NotEvaluatedError
            case SlotKind.MIT_MOT:
                self.states[slot] = start.copy()
            case SlotKind.NON_SEQ:
                self.fixed[slot.inner_inputs[0]] = start
            case _:  # a sequence, or a state without a trace
                self.states[slot] = start

    def inputs(self, step: int) -> dict[Variable, Any]:
        """Return what a step reads."""
        found = dict(self.fixed)
        for slot in self.view.slots:
            for tap, inner in zip(slot.taps or (0,), slot.inner_inputs, strict=False):
                match slot.kind:
                    case SlotKind.SEQ:
                        found[inner] = _row(self.states[slot], step)
                    case SlotKind.UNTRACED:
                        found[inner] = self.states[slot]
                    case SlotKind.MIT_MOT:
                        found[inner] = _row(self.states[slot], step + tap - min(slot.taps)).copy()
                    case SlotKind.MIT_SOT | SlotKind.SIT_SOT:
                        found[inner] = _row(self.rows[slot], slot.n_initial + step + tap)
        return found

    def _write(self, slot: Slot, tap: int, value: Any, step: int) -> None:
        if slot.kind is not SlotKind.MIT_MOT:
            super()._write(slot, tap, value, step)
            return
        row = _row(self.states[slot], place := step + tap - min(slot.taps))
        if row.shape != np.shape(value):
            raise NotEvaluatedError
        self.states[slot][place] = value

    def found(self) -> dict[Variable, Any]:
        """Return the outputs of the loop."""
        of_kinds = self.view.of_kind(SlotKind.MIT_MOT, SlotKind.UNTRACED)
        return self.traces() | {slot.output: self.states[slot] for slot in of_kinds}


class _LoopRun(_Run):
    """A TracedLoop."""

    def _begin(self, slot: Slot, start: Any) -> None:
        if slot.kind is SlotKind.STATE:
            self.states[slot], self.rows[slot] = start, [start]
        else:
            self.fixed[slot.inner_inputs[0]] = start

    def inputs(self, step: int) -> dict[Variable, Any]:
        """Return what a step reads."""
        states = {slot.inner_inputs[0]: value for slot, value in self.states.items()}
        is_number = isinstance(self.view.index.type, ScalarType)
        index = np.int64(step) if is_number else np.asarray(step, dtype="int64")
        return self.fixed | states | {self.view.index: index}

    def _stops(self, condition: bool) -> bool:
        return not condition

    def found(self) -> dict[Variable, Any]:
        """Return the outputs of the loop."""
        last = {slot.last: value for slot, value in self.states.items() if slot.last is not None}
        counts = dict.fromkeys(self.view.counts, np.asarray(self.n_done, dtype="int64"))
        return self.traces() | last | counts


def _row(rows: Any, place: int) -> Any:
    """A row of an array or list, as an array."""
    if not 0 <= place < len(rows):
        raise NotEvaluatedError
    return np.asarray(rows[place])


def _append(rows: list[Any], value: Any) -> None:
    """Add a row, which must have the shape of those before it."""
    if rows and np.shape(rows[0]) != np.shape(value):
        raise NotEvaluatedError
    rows.append(value)
