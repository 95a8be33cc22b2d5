"""The properties, besides the trip count, that loops must share to be merged."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from pytensor.graph.basic import Apply

from scanopt_cli.analysis.batches import BatchShapes
from scanopt_cli.analysis.buffers import is_trimmed, trimmed
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.trip_counts import StepCounts
from scanopt_cli.ir.levels import always_computed
from scanopt_cli.ir.scan_view import ScanView
from scanopt_cli.pipeline.contract import PassContext, works_in_place


@dataclass(frozen=True, slots=True)
class LoopTerms:
    """The properties, besides the trip count, that loops must share to be merged.

    A loop with an ``obstacle`` is never merged.
    """

    condition: object
    batch: object
    is_trimmed: bool
    truncate_gradient: int
    mode: Any
    profile: Any
    allow_gc: bool
    obstacle: str | None

    def against(self, other: LoopTerms) -> str | None:
        """Return why loops with these and ``other`` terms cannot merge, ``None`` if they can."""
        if self.obstacle is not None:
            return self.obstacle
        names = [field.name for field in fields(self)]
        name = next((n for n in names if getattr(self, n) != getattr(other, n)), None)
        match name:
            case None:
                return None
            case "condition":
                one = self.condition is None or other.condition is None
                return "only one has a stop condition" if one else "they stop by other conditions"
            case "batch":
                return "their batches are not proved to have one shape"
            case "is_trimmed":
                return "only one keeps every step"
            case "truncate_gradient":
                return f"{name} is {self.truncate_gradient}, not {other.truncate_gradient}"
        return f"{name} differs"


class Judge:
    """Computes the terms of loops; ``loops`` are all loops of the graph.

    Loops that always run prove that the batch lengths that meet in them are equal.
    """

    def __init__(self, context: PassContext, counts: StepCounts, loops: Iterable[Apply]) -> None:
        self._context = context
        self._always = always_computed(context.fgraph)
        self._batches = BatchShapes(counts.of_form)
        for node in loops:
            if node in self._always:
                self._batches.learn(ScanView.of(node))

    def terms(self, node: Apply) -> LoopTerms:
        """Return the terms of a loop."""
        view = ScanView.of(node)
        lengths = Lengths(view.n_steps)
        short = trimmed(view)
        is_short = any(is_trimmed(view, slot, lengths) for slot in short)
        obstacle = None
        if node not in self._always:
            obstacle = "a branch of an IfElse decides whether it runs"
        elif works_in_place(view):
            obstacle = "a step works in place"
        elif short and not is_short:
            names = ", ".join(slot.label for slot in short)
            obstacle = f"the buffers of {names} are shown neither to be trimmed nor to be whole"
        return LoopTerms(
            condition=self._context.condition(view),
            batch=self._batches.of(view),
            is_trimmed=is_short,
            truncate_gradient=view.op.truncate_gradient,
            mode=view.op.mode,
            profile=view.op.profile or None,
            allow_gc=bool(view.op.allow_gc),
            obstacle=obstacle,
        )
