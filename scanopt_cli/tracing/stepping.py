"""A loop run step by step in Python, which shows what each step reads and computes.

The rows that a step reads, and where it writes, follow from its slots. A step is a function of the
body, compiled without rewrites; it may note what each node inside computes, before another one
works in its place.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FrozenFunctionGraph, FunctionGraph
from pytensor.scalar.basic import ScalarType
from pytensor.tensor.type import TensorType

from scanopt_cli.ir.scan_view import ScanView
from scanopt_cli.ir.slots import Slot, SlotKind, SlotView
from scanopt_cli.tracing.values import snapshot
from scanopt_cli.verification.checking_linker import CheckingLinker
from scanopt_cli.verification.worker import compiled

type NodeOutput = tuple[int, int]
"""The position of a node in its graph's order, and that of one of its outputs."""

_TAG = "scanopt_node_output"


class StepError(Exception):
    """A step of a loop raised an error, which is the cause of this one."""

    def __init__(self, step: int, error: Exception) -> None:
        super().__init__(step)
        self.step = step
        self.error = error


@dataclass(frozen=True, slots=True)
class StepGraph:
    """A body whose variables are its own: inputs, outputs, and its nodes in their order."""

    inputs: Sequence[Variable]
    outputs: Sequence[Variable]
    nodes: Sequence[Apply] = ()

    @classmethod
    def of(cls, body: FrozenFunctionGraph, more: Sequence[Variable] = ()) -> StepGraph:
        """Return a copy of a body; after its outputs, it returns ``more`` variables of it."""
        inputs = [variable.type() for variable in body.inputs]
        outputs, memo = body.bind(dict(zip(body.inputs, inputs, strict=True)), return_memo=True)
        nodes = [memo[node] for node in body.toposort()]
        return cls(inputs, [*outputs, *(memo.get(v, v) for v in more)], nodes)


@dataclass(frozen=True, slots=True)
class Step:
    """One step: what its body read and returned, in the order of the body, and computed inside."""

    number: int
    inputs: Sequence[Any]
    outputs: Sequence[Any]
    inside: Mapping[NodeOutput, Any]


class StepFunction:
    """The compiled body of a loop.

    Parameters
    ----------
    graph
        The body.
    notes_nodes
        Whether what each node computes is noted.
    with_c
        Whether the graph needs C to run.
    """

    def __init__(self, graph: StepGraph, *, notes_nodes: bool = False, with_c: bool = False):
        self.inside: dict[NodeOutput, Any] = {}
        for place, node in enumerate(graph.nodes if notes_nodes else ()):
            for index, output in enumerate(node.outputs):
                setattr(output.tag, _TAG, (place, index))
        # PyTensor's stack machine does not use the memory of results again.
        note = self._note if notes_nodes else None
        linker = CheckingLinker(use_cloop=False, c_thunks=with_c, lazy=True, callback=note)
        # A copy: the outputs may be those of another graph, too.
        fgraph = FunctionGraph(list(graph.inputs), list(graph.outputs), clone=True)
        self._overwrites = any(getattr(node.op, "destroy_map", None) for node in fgraph.apply_nodes)
        self._function = compiled(
            fgraph, Mode(linker, "minimum_compile"), overwrites=self._overwrites
        )

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        """Return the outputs of the body."""
        self.inside = {}
        given = map(snapshot, inputs) if self._overwrites else inputs
        outputs: list[Any] = self._function(*given)
        return outputs

    def _note(self, *, node: Apply, storage_map: Any, **_: Any) -> None:
        for output in node.outputs:
            place = getattr(output.tag, _TAG, None)
            if place is not None:
                self.inside[place] = snapshot(storage_map[output][0])


def steps(view: SlotView, function: StepFunction, values: Sequence[Any]) -> Iterator[Step]:
    """Yield the steps of a loop whose node reads ``values``; of a batch, those of the first entry.

    Raises
    ------
    StepError
        If a step raises.
    ValueError, IndexError
        If the loop cannot begin: a sequence is too short, say.
    """
    body = view.op.fgraph
    outer = _of_first_entry(view, values)
    n_steps = int(outer[view.n_steps])
    if n_steps < 0:
        raise ValueError(f"the loop was asked for {n_steps} steps")
    feeds = [_feed(slot, outer[slot.outer_input], n_steps) for slot in view.slots]
    read_at = {variable: place for place, variable in enumerate(body.inputs)}
    returned_at = {variable: place for place, variable in enumerate(body.outputs)}
    pairs = list(zip(view.slots, feeds, strict=True))
    for number in range(n_steps):
        inputs: list[Any] = [None] * len(body.inputs)
        for slot, feed in pairs:
            for variable, value in zip(slot.inner_inputs, feed.read(number), strict=True):
                inputs[read_at[variable]] = _as_input(variable, value)
        try:
            outputs = function(inputs)
        except MemoryError:
            raise
        except Exception as error:
            raise StepError(number, error) from error
        yield Step(number, inputs, outputs, function.inside)
        for slot, feed in pairs:
            feed.write(number, [outputs[returned_at[v]] for v in slot.inner_outputs])
        if view.condition is not None:
            is_met = bool(outputs[returned_at[view.condition]])
            # A Scan has the condition to stop, other loops that to go on.
            if is_met is isinstance(view, ScanView):
                return


def initial_values(view: SlotView, slot: Slot, values: Sequence[Any]) -> list[Any]:
    """Return what a state is before the first step, the oldest value first."""
    value = _of_first_entry(view, values)[slot.outer_input]
    if slot.kind in (SlotKind.MIT_SOT, SlotKind.SIT_SOT):
        return list(value[: slot.n_initial])
    return [value] if slot.kind in (SlotKind.STATE, SlotKind.UNTRACED) else []


def constant_value(view: SlotView, slot: Slot, values: Sequence[Any]) -> Any:
    """Return what a slot is in all steps."""
    return _of_first_entry(view, values)[slot.outer_input]


def _of_first_entry(view: SlotView, values: Sequence[Any]) -> dict[Variable, Any]:
    if not view.batch_ndim:
        return dict(zip(view.node.inputs, values, strict=True))
    first = (0,) * view.batch_ndim
    if any(0 in np.shape(value)[: view.batch_ndim] for value in values):
        raise ValueError("the batch has no entry")
    return {v: value[first] for v, value in zip(view.node.inputs, values, strict=True)}


def _as_input(variable: Variable, value: Any) -> Any:
    if isinstance(variable.type, TensorType):
        return np.asarray(value)
    if isinstance(variable.type, ScalarType):
        return np.asarray(value)[()]
    return value


class _Feed(Protocol):
    """What a step reads of one slot, and where it writes."""

    def read(self, step: int) -> Sequence[Any]: ...

    def write(self, step: int, values: Sequence[Any]) -> None: ...


def _feed(slot: Slot, value: Any, n_steps: int) -> _Feed:
    match slot.kind:
        case SlotKind.SEQ:
            return _Rows(value, n_steps)
        case SlotKind.MIT_MOT:
            return _Buffer(slot, value)
        case SlotKind.MIT_SOT | SlotKind.SIT_SOT:
            return _Recent(slot, value)
        case SlotKind.UNTRACED | SlotKind.STATE:
            return _Held(value)
        case SlotKind.INDEX:
            return _Index()
        case SlotKind.NIT_SOT | SlotKind.TRACED:
            return _Nothing()
    return _Same(value)


class _Nothing:
    def read(self, step: int) -> Sequence[Any]:  # noqa: ARG002
        return ()

    def write(self, step: int, values: Sequence[Any]) -> None: ...


class _Same(_Nothing):
    def __init__(self, value: Any) -> None:
        self.value = value

    def read(self, step: int) -> Sequence[Any]:  # noqa: ARG002
        return (self.value,)


class _Held(_Same):
    def write(self, step: int, values: Sequence[Any]) -> None:  # noqa: ARG002
        (self.value,) = values


class _Index(_Nothing):
    def read(self, step: int) -> Sequence[Any]:
        return (np.int64(step),)


class _Rows(_Nothing):
    def __init__(self, rows: Any, n_steps: int) -> None:
        if len(rows) < n_steps:
            raise ValueError(f"a sequence has {len(rows)} rows, and the loop {n_steps} steps")
        self._rows = rows

    def read(self, step: int) -> Sequence[Any]:
        return (self._rows[step],)


class _Recent(_Nothing):
    """The last values of a state; its buffer begins with those before the first step."""

    def __init__(self, slot: Slot, buffer: Any) -> None:
        if len(buffer) < slot.n_initial:
            raise ValueError(f"a state has {len(buffer)} initial rows, and needs {slot.n_initial}")
        self._taps = slot.taps
        self._values = deque(map(np.copy, buffer[: slot.n_initial]), maxlen=slot.n_initial)

    def read(self, step: int) -> Sequence[Any]:  # noqa: ARG002
        return [self._values[tap] for tap in self._taps]

    def write(self, step: int, values: Sequence[Any]) -> None:  # noqa: ARG002
        self._values.append(values[0])


class _Buffer(_Nothing):
    """The rows of a mit_mot, of which the lowest tap is at row 0 in the first step."""

    def __init__(self, slot: Slot, buffer: Any) -> None:
        self._slot, self._rows = slot, np.copy(buffer)
        self._first = -min(slot.taps)

    def read(self, step: int) -> Sequence[Any]:
        return [np.copy(self._rows[self._place(step, tap)]) for tap in self._slot.taps]

    def write(self, step: int, values: Sequence[Any]) -> None:
        for tap, value in zip(self._slot.out_taps, values, strict=True):
            self._rows[self._place(step, tap)] = value

    def _place(self, step: int, tap: int) -> int:
        return (step + self._first + tap) % len(self._rows)
