"""What a finding costs: bytes, operations in each step, and about how long that takes."""

from __future__ import annotations

from collections.abc import Iterable

from pytensor.graph.basic import Apply

from scanopt_cli.analysis.body_lengths import BodyLengths
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.named_loops import NamedLoop
from scanopt_cli.analysis.statistics import buffer_bytes
from scanopt_cli.analysis.step_costs import step_cost
from scanopt_cli.ir.slots import Slot
from scanopt_cli.text import plural, size_text

_OPERATION = 1
"""About the nanoseconds of an operation on numbers."""
_ARRAY = 40
"""About the nanoseconds of an operation on arrays, apart from their entries."""
_STEP = 100
"""About the nanoseconds that a Scan takes for a step, apart from what the step computes."""
_LONGEST = 40
"""The longest formula for operations that is shown."""
_UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1, "ns"))


def memory(loop: NamedLoop, slots: Iterable[Slot]) -> str | None:
    """Return how many bytes the buffers of slots take, as a formula; ``None`` without any.

    Those of a loop in a body are allocated at each step around it: it is said how often, if known.
    """
    size = buffer_bytes(loop.view, slots)
    if not size.terms:
        return None
    told = size if loop.holder is None else loop.holder.lengths.formula_outside(size)
    runs = _runs(loop)
    often = "" if runs in (None, 1) else f", {runs:,} times a call"
    return f"{size_text(str(told))}{often}"


def work(loop: NamedLoop, nodes: Iterable[Apply] | None = None) -> str | None:
    """Return how much a step computes, or some ``nodes`` of it, and how long a call takes for it.

    The time is an estimate: a nanosecond an operation, and 40 for each that is on arrays. It is
    known if the number of steps is, of the loops around it as well, and the lengths of the arrays.
    """
    around = None if loop.holder is None else loop.holder.lengths
    inside = BodyLengths(loop.view.node, around=around, names=loop.inner_names)
    cost = step_cost(loop.view, inside, nodes=nodes)
    if cost.operations == "0":
        return None
    n_arrays = sum(operation.count for operation in cost.arrays)
    if len(cost.operations) > _LONGEST:
        return f"{plural(n_arrays, 'operation')} on arrays a step"
    text = f"{plural(cost.operations, 'operation')} a step"
    steps = _all_steps(loop)
    if steps is None or not cost.operations.isdecimal():
        return text
    step = _OPERATION * int(cost.operations) + _ARRAY * n_arrays
    return f"{text}, {time_text(steps * step)}"


def overhead(loop: NamedLoop) -> str | None:
    """Return how long a loop takes that does nothing, if its number of steps is known.

    The time is an estimate: 100 nanoseconds a step.
    """
    steps = _all_steps(loop)
    return None if steps is None else time_text(_STEP * steps)


def _all_steps(loop: NamedLoop) -> int | None:
    """Return how many steps a loop takes in a call of the graph, if that is known."""
    steps, runs = _steps(loop), _runs(loop)
    return None if steps is None or runs is None else steps * runs


def _runs(loop: NamedLoop) -> int | None:
    """Return how often a loop runs in a call of the graph, if that is known."""
    runs, around = 1, loop.parent
    while around is not None:
        steps = None if around.view.batch_ndim or around.view.is_while else _steps(around)
        if steps is None:
            return None
        runs, around = runs * steps, around.parent
    return runs


def _steps(loop: NamedLoop) -> int | None:
    count = Lengths(loop.view.n_steps).steps
    told = count if loop.holder is None else loop.holder.lengths.in_outer_terms(count)
    return told.constant if told.is_constant else None


def time_text(nanoseconds: float) -> str:
    """Return an estimate of time: ``about 0.3 ms a call``."""
    size, unit = next(
        ((size, unit) for size, unit in _UNITS if nanoseconds >= size / 10), _UNITS[-1]
    )
    return f"about {float(f'{nanoseconds / size:.1g}'):g} {unit} a call"
