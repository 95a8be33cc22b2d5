"""The loops that are left in a compiled graph, and what a step of each computes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pytensor.graph.fg import AbstractFunctionGraph

from scanopt_cli.analysis.named_loops import named_loops
from scanopt_cli.analysis.step_costs import StepCost, step_cost
from scanopt_cli.presentation import Presented


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class LoopLeft(Presented):
    """A loop after the passes.

    Attributes
    ----------
    name
        Its name after those of the loops and graphs around it, joined by ``/``.
    design
        ``Scan`` or ``TracedLoop``.
    place
        Where it was written, ``model.py:41 in step``, if that is known.
    cost
        What a step of it computes, on numbers and on arrays.
    """

    name: str
    design: str
    place: str | None
    cost: StepCost


def left_loops(fgraph: AbstractFunctionGraph) -> Iterator[LoopLeft]:
    """Yield the loops of ``fgraph``, those of a body after its own; each distinct body once."""
    for loop in named_loops(fgraph):
        yield LoopLeft(
            name=loop.title, design=loop.view.design, place=loop.place, cost=step_cost(loop.view)
        )
