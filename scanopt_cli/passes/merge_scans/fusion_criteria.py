"""The properties, besides the trip count, that loops must share to be merged."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from pytensor.graph.basic import Apply

from scanopt_cli.analysis.buffers import is_trimmed, trimmed
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.ir.levels import always_computed
from scanopt_cli.ir.scan_view import view_of
from scanopt_cli.passes.merge_scans.batches import BatchShapes
from scanopt_cli.passes.merge_scans.trip_counts import StepCounts
from scanopt_cli.pipeline.contract import PassContext
from scanopt_cli.pipeline.loop_passes import works_in_place
from scanopt_cli.remarks import Reason, Why, because


@dataclass(frozen=True, slots=True)
class FusionCriteria:
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
    obstacle: Reason | None

    def against(self, other: FusionCriteria) -> Reason | None:
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
                return because(Why.ONE_CONDITION if one else Why.CONDITION_DIFFERS)
            case "batch":
                return because(Why.BATCHES_DIFFER)
            case "is_trimmed":
                return because(Why.ONE_TRIMMED)
        ours, theirs = (str(getattr(terms, name)) for terms in (self, other))
        return because(Why.OPTION_DIFFERS, option=name, ours=ours, theirs=theirs)


class FusionAnalysis:
    """Computes the terms of loops; ``loops`` are all loops of the graph.

    Loops that always run prove that the batch lengths that meet in them are equal.
    """

    def __init__(self, context: PassContext, counts: StepCounts, loops: Iterable[Apply]) -> None:
        self._context = context
        self._always = always_computed(context.fgraph.outputs)
        self._batches = BatchShapes(counts.of_form)
        for node in loops:
            if node in self._always:
                self._batches.learn(view_of(node))

    def terms(self, node: Apply) -> FusionCriteria:
        """Return the terms of a loop."""
        view = view_of(node)
        lengths = Lengths(view.n_steps)
        short = trimmed(view)
        is_short = any(is_trimmed(view, slot, lengths) for slot in short)
        obstacle = None
        if node not in self._always:
            obstacle = because(Why.UNTAKEN_BRANCH)
        elif works_in_place(view):
            obstacle = because(Why.IN_PLACE, what="a step")
        elif short and not is_short:
            obstacle = because(Why.BUFFERS_UNCLEAR, slots=tuple(slot.label for slot in short))
        return FusionCriteria(
            condition=self._context.condition(view),
            batch=self._batches.of(view),
            is_trimmed=is_short,
            truncate_gradient=getattr(view.op, "truncate_gradient", -1),
            mode=getattr(view.op, "mode", None),
            profile=getattr(view.op, "profile", None) or None,
            allow_gc=bool(getattr(view.op, "allow_gc", False)),
            obstacle=obstacle,
        )
