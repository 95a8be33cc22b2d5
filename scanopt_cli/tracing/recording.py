"""The values of one loop at its steps, as the child process keeps them and writes them down."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from scanopt_cli.analysis.expression_text import at_tap, describe, loop_results
from scanopt_cli.analysis.named_loops import NamedLoop
from scanopt_cli.ir.naming import titles
from scanopt_cli.ir.scan_view import ScanView
from scanopt_cli.ir.slots import Slot, SlotKind
from scanopt_cli.tracing.step_range import StepRange
from scanopt_cli.tracing.stepping import (
    NodeOutput,
    Step,
    StepError,
    StepFunction,
    constant_value,
    initial_values,
    steps,
)
from scanopt_cli.tracing.values import as_array, is_finite, snapshot
from scanopt_cli.verification.worker import error_text

_MOST_BYTES = 1 << 28
_SAME = (SlotKind.NON_SEQ, SlotKind.CONSTANT)


class TooLargeError(Exception):
    """The values of the steps take more memory than they may."""


@dataclass(slots=True)
class Series:
    """One value at each step that was kept: of a slot, of a condition, or of a node inside."""

    name: str
    kind: str
    values: deque[np.ndarray]
    initial: list[np.ndarray] = field(default_factory=list)
    is_constant: bool = False


@dataclass(slots=True)
class Recording:
    """The steps of one loop.

    Attributes
    ----------
    loop
        The loop.
    series
        What it computed at the kept steps: slots and the condition, then nodes.
    kept
        The numbers of these steps.
    count
        How many steps were run.
    asked
        How many steps the loop runs at most.
    is_complete
        Whether it ran to its end.
    error
        The error that the step after the last one raised, if one did.
    """

    loop: NamedLoop
    series: list[Series]
    kept: deque[int]
    count: int = 0
    asked: int = 0
    is_complete: bool = False
    error: str | None = None

    @property
    def is_finite(self) -> bool:
        """Whether no value is NaN or infinite."""
        return all(is_finite(value) for one in self.series for value in one.values)

    def written(self, prefix: str, wanted: StepRange) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return what is known of the loop as JSON has it, and arrays by the keys in it."""
        inside = wanted.within(self.count)
        places = [place for place, step in enumerate(self.kept) if step in inside]
        arrays: dict[str, np.ndarray] = {}
        told = []
        for number, one in enumerate(self.series):
            key = f"{prefix}.{number}"
            values = list(one.values)
            values = values if one.is_constant else [values[place] for place in places]
            is_uniform = len({(value.shape, value.dtype.str) for value in values}) == 1
            if is_uniform:
                arrays[key] = np.stack(values)
            else:
                arrays |= {f"{key}.{i}": value for i, value in enumerate(values)}
            arrays |= {f"{key}.initial.{i}": value for i, value in enumerate(one.initial)}
            told.append(
                {
                    "name": one.name,
                    "kind": one.kind,
                    "is_constant": one.is_constant,
                    "is_uniform": is_uniform,
                    "count": len(values),
                    "n_initial": len(one.initial),
                }
            )
        facts = {
            "series": told,
            "steps": [self.kept[place] for place in places],
            "count": self.count,
            "asked": self.asked,
            "is_complete": self.is_complete,
            "error": self.error,
        }
        return facts, arrays


def record(
    loop: NamedLoop,
    function: StepFunction,
    values: Sequence[Any],
    slots: Sequence[Slot],
    wanted: StepRange,
    *,
    nodes: Mapping[NodeOutput, str],
) -> Recording:
    """Run a loop that reads ``values``; keep what its ``slots`` and ``nodes`` are at some steps.

    Raises
    ------
    TooLargeError
        If this takes too much memory.
    ValueError, IndexError
        If the loop cannot begin.
    """
    view = loop.view
    start, stop = wanted.start or 0, wanted.stop
    most = -start if start < 0 and (stop is None or stop < 0) else None
    readers = [pair for slot in slots for pair in _of_slot(loop, slot, values, most)]
    if view.condition is not None and len(slots) == len(view.slots):
        place = list(view.op.fgraph.outputs).index(view.condition)
        kind = "stops when" if isinstance(view, ScanView) else "goes on while"
        readers.append((Series("condition", kind, deque(maxlen=most)), _Output(place)))
    found = [(Series(name, "node", deque(maxlen=most)), at) for at, name in nodes.items()]
    made = Recording(loop, [one for one, _ in readers], deque(maxlen=most))
    made.asked = int(constant_value(view, _steps_slot(view.n_steps), values))
    n_bytes = 0
    try:
        for step in steps(view, function, values):
            made.count += 1
            if not wanted.may_hold(step.number):
                continue
            made.kept.append(step.number)
            for one, reader in readers:
                if not one.is_constant:
                    one.values.append(as_array(snapshot(reader.of(step))))
                    n_bytes += one.values[-1].nbytes
            for one, at in found:
                one.values.append(as_array(step.inside.get(at, _UNCOMPUTED)))
                n_bytes += one.values[-1].nbytes
            if most is None and n_bytes > _MOST_BYTES:
                raise TooLargeError
            if wanted.end is not None and made.count >= wanted.end:
                break
        else:
            made.is_complete = True
    except StepError as error:
        made.error = error_text(error.error)
    made.series += [one for one, at in found if any(v.dtype.kind != "U" for v in one.values)]
    return made


_UNCOMPUTED = "not computed"


def _steps_slot(n_steps: Any) -> Slot:
    """Return what stands for the number of steps, which belongs to no slot."""
    return Slot(SlotKind.NON_SEQ, 0, outer_input=n_steps)


@dataclass(frozen=True, slots=True)
class _Input:
    place: int

    def of(self, step: Step) -> Any:
        return step.inputs[self.place]


@dataclass(frozen=True, slots=True)
class _Output:
    place: int

    def of(self, step: Step) -> Any:
        return step.outputs[self.place]


type _Reader = _Input | _Output


def _of_slot(
    loop: NamedLoop, slot: Slot, values: Sequence[Any], most: int | None
) -> Iterator[tuple[Series, _Reader]]:
    """Yield the series of a slot: of a mit_mot one for each tap at which a step writes."""
    view, name = loop.view, loop.names[slot]
    body = view.op.fgraph
    if slot.kind is SlotKind.INDEX:
        return
    if slot.kind in _SAME:
        value = as_array(snapshot(constant_value(view, slot, values)))
        place = list(body.inputs).index(slot.inner_inputs[0])
        yield Series(name, slot.kind.value, deque([value]), is_constant=True), _Input(place)
    elif slot.kind is SlotKind.SEQ:
        place = list(body.inputs).index(slot.inner_inputs[0])
        yield Series(name, slot.kind.value, deque(maxlen=most)), _Input(place)
    else:
        initial = list(map(as_array, map(snapshot, initial_values(view, slot, values))))
        outputs = list(body.outputs)
        for tap, variable in zip(slot.out_taps, slot.inner_outputs, strict=True):
            called = f"{name}[{at_tap(tap)}]" if slot.kind is SlotKind.MIT_MOT else name
            one = Series(called, slot.kind.value, deque(maxlen=most), initial)
            yield one, _Output(outputs.index(variable))


def node_names(loop: NamedLoop) -> dict[NodeOutput, str]:
    """Return the expression of each output of each node of a loop's body, in their order."""
    body = loop.view.op.fgraph
    names = {**loop.inner_names, **loop_results(titles(body.outputs))}
    return {
        (place, index): describe(output, names)
        for place, node in enumerate(body.toposort())
        for index, output in enumerate(node.outputs)
    }
