"""`trace`: the values of the slots of loops at each step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from scanopt_cli.analysis.distinct_loops import loops_called
from scanopt_cli.analysis.named_loops import NamedLoop, named_loops
from scanopt_cli.errors import ScanoptError
from scanopt_cli.ir.folding import bounded_folding
from scanopt_cli.ir.graph import GraphLike, as_graph
from scanopt_cli.text import comma_separated, few
from scanopt_cli.tracing.arguments_given import ArgumentsLike, arguments_of
from scanopt_cli.tracing.child import answer
from scanopt_cli.tracing.reaching import loops_around
from scanopt_cli.tracing.requests import TraceRequest, WantedLoop
from scanopt_cli.tracing.result import LoopTrace, OuterStep, SlotTrace, Trace
from scanopt_cli.tracing.step_range import StepRange, StepsLike
from scanopt_cli.verification.spawning import tables

_LISTED = 12


@bounded_folding()
def trace(
    graph: GraphLike,
    arguments: ArgumentsLike = None,
    *,
    loop: str | None = None,
    slot: str | Sequence[str] | None = None,
    steps: StepsLike = None,
    inner: bool = False,
    outer_step: int | Sequence[int] = 0,
    seed: int = 0,
    timeout: float = 300.0,
    progress: Callable[[str], None] | None = None,
) -> Trace:
    """Run loops step by step, and return what each step reads and computes.

    The graph is evaluated as it is, without rewrites, in a child process.

    Parameters
    ----------
    graph
        A loaded graph, the path of its file, a FunctionGraph or an ``(inputs, outputs)`` pair.
    arguments
        Values of the inputs by name or in order, or a file of them that `numpy.savez` wrote. By
        default those of the first recorded call, else they are drawn, as `verify` draws them.
    loop
        Which loop: its name, those of the loops around it and its own joined by ``/``, or the line
        that wrote it. By default all that are in no other loop.
    slot
        Which slots, by the names that `inspect` has for them; by default all.
    steps
        Which steps: a slice, a number, or a text, ``5:10``. By default all.
    inner
        Whether to trace the nodes inside as well.
    outer_step
        In which step of the loop around it a loop is traced; with several around it, one number
        for each, the outermost first, or the number of the nearest.
    seed
        The seed of arguments that are drawn.
    timeout
        Seconds of processor time.
    progress
        Called with a short description of what is being done.

    Raises
    ------
    ScanoptError
        If there is no such loop, slot or step, arguments do not fit, or the graph cannot be
        evaluated.
    """
    wanted_steps = StepRange.of(steps, where="--steps")
    work = as_graph(graph)
    known = list(named_loops(work.fgraph, each_place=True))
    chosen = _chosen(known, loop, work.source)
    named = comma_separated(slot) if slot is None or isinstance(slot, str) else tuple(slot)
    taken = [pair for pair in zip(chosen, _slots(chosen, named), strict=True) if pair[1]]
    outer = [_outer_steps(each, outer_step) for each, _ in taken]
    given = arguments_of(work, arguments, seed)
    request = TraceRequest(
        graphs=tables(work),
        arguments=given,
        loops=tuple(
            WantedLoop(
                position=known.index(each),
                slots=tuple(places),
                outer_steps=tuple(one.step for one in around),
            )
            for (each, places), around in zip(taken, outer, strict=True)
        ),
        steps=wanted_steps,
        inner=inner,
        timeout=timeout,
    )
    facts, arrays = answer(request, work.source, progress)
    return Trace(
        source=work.source,
        arguments=facts["arguments"],
        is_drawn=given.values is None,
        loops=tuple(
            _loop_trace(each, around, told, str(place), arrays)
            for place, ((each, _), around, told) in enumerate(
                zip(taken, outer, facts["loops"], strict=True)
            )
        ),
    )


def _chosen(known: Sequence[NamedLoop], text: str | None, source: str) -> list[NamedLoop]:
    if text is not None:
        return loops_called(known, text)
    if not known:
        raise ScanoptError("there is no loop in this graph", where=source)
    return [loop for loop in known if loop.parent is None]


def _slots(loops: Sequence[NamedLoop], names: Sequence[str]) -> list[list[int]]:
    """Return the positions of the slots of some names, or of all, in each loop.

    A loop may have none of them, if another has.
    """
    found: list[list[int]] = []
    missing = set(names)
    for loop in loops:
        places = []
        for place, (slot, name) in enumerate(loop.names.items()):
            called = {name, slot.label, name.partition("#")[0]} & set(names)
            missing -= called
            if called or not names:
                places.append(place)
        found.append(places)
    if missing:
        name = next(name for name in names if name in missing)
        known = dict.fromkeys(name for loop in loops for name in loop.names.values())
        listed = f"slots: {few(list(known), _LISTED)}"
        raise ScanoptError(f"there is no slot {name!r}", where="--slot", hint=listed)
    return found


def _outer_steps(loop: NamedLoop, given: int | Sequence[int]) -> list[OuterStep]:
    """Return the steps of the loops around one in which it is traced."""
    around = loops_around(loop)
    numbers = [given] if isinstance(given, int) else list(given)
    if any(number < 0 for number in numbers):
        raise ScanoptError("steps are counted from 0", where="--outer-step")
    if len(numbers) > len(around) and any(numbers):
        what = f"{loop.title} is in {'no loop' if not around else f'{len(around)} loops'}"
        raise ScanoptError(what, where="--outer-step", hint="give at most one for each around it")
    numbers = [0] * (len(around) - len(numbers)) + numbers if around else []
    return [OuterStep(each.title, step) for each, step in zip(around, numbers, strict=True)]


def _loop_trace(
    loop: NamedLoop,
    outer: Sequence[OuterStep],
    told: Any,
    prefix: str,
    arrays: Mapping[str, np.ndarray],
) -> LoopTrace:
    series = [
        _series(one, f"{prefix}.{number}", arrays) for number, one in enumerate(told["series"])
    ]
    return LoopTrace(
        kind=loop.view.design,
        name=loop.name,
        path=loop.path[:-1],
        place=loop.place,
        outer_steps=tuple(outer),
        is_batched=bool(loop.view.batch_ndim),
        steps=tuple(told["steps"]),
        n_steps=told["count"],
        most_steps=told["asked"],
        is_complete=told["is_complete"],
        error=told["error"],
        slots=tuple(one for one in series if one.kind != "node"),
        nodes=tuple(one for one in series if one.kind == "node"),
    )


def _series(told: Any, key: str, arrays: Mapping[str, np.ndarray]) -> SlotTrace:
    values: np.ndarray | tuple[np.ndarray, ...]
    if told["is_uniform"]:
        values = arrays[key]
    else:
        values = tuple(arrays[f"{key}.{i}"] for i in range(told["count"]))
    if told["is_constant"]:
        values = values[0]
    return SlotTrace(
        name=told["name"],
        kind=told["kind"],
        values=values,
        initial=tuple(arrays[f"{key}.initial.{i}"] for i in range(told["n_initial"])),
        is_constant=told["is_constant"],
    )
