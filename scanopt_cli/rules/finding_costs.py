"""What a finding costs: bytes, operations in each step, and about how long that takes."""

from __future__ import annotations

from collections.abc import Iterable

from pytensor.graph.basic import Apply

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
    """Return how many bytes the buffers of slots take, as a formula; ``None`` without any."""
    size = buffer_bytes(loop.view, slots)
    return size_text(str(size)) if size.terms else None


def work(loop: NamedLoop, nodes: Iterable[Apply] | None = None) -> str | None:
    """Return how much a step computes, or some ``nodes`` of it, and how long a call takes for it.

    The time is an estimate: a nanosecond an operation, and 40 for each that is on arrays. It is
    known if the number of steps is, and the lengths of the arrays.
    """
    cost = step_cost(loop.view, nodes=nodes)
    if cost.operations == "0":
        return None
    n_arrays = sum(operation.count for operation in cost.arrays)
    if len(cost.operations) > _LONGEST:
        return f"{plural(n_arrays, 'operation')} on arrays a step"
    text = f"{plural(cost.operations, 'operation')} a step"
    steps = Lengths(loop.view.n_steps).steps
    if not (steps.is_constant and cost.operations.isdecimal()) or len(loop.path) > 1:
        return text
    step = _OPERATION * int(cost.operations) + _ARRAY * n_arrays
    return f"{text}, {time_text(steps.constant * step)}"


def overhead(loop: NamedLoop) -> str | None:
    """Return how long a loop takes that does nothing, if its number of steps is known.

    The time is an estimate: 100 nanoseconds a step.
    """
    steps = Lengths(loop.view.n_steps).steps
    is_known = steps.is_constant and len(loop.path) == 1
    return time_text(_STEP * steps.constant) if is_known else None


def time_text(nanoseconds: float) -> str:
    """Return an estimate of time: ``about 0.3 ms a call``."""
    size, unit = next(
        ((size, unit) for size, unit in _UNITS if nanoseconds >= size / 10), _UNITS[-1]
    )
    return f"about {float(f'{nanoseconds / size:.1g}'):g} {unit} a call"
