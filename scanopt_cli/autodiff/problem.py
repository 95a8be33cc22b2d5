"""What is to be differentiated, and what is refused before anything is built."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph

from scanopt_cli.autodiff.choices import Strategy
from scanopt_cli.autodiff.diagnose import refuse_complex
from scanopt_cli.autodiff.legality import refuse_in_place, refuse_trimmed, truncations
from scanopt_cli.autodiff.selecting import (
    input_names,
    input_positions,
    output_names,
    output_position,
)
from scanopt_cli.errors import GradientError
from scanopt_cli.ir.graph import Graph, GraphObject, as_graph
from scanopt_cli.passes.of_scans.initial_rows_alone import InitialRowsAlone
from scanopt_cli.pipeline.runner import run_pipeline


@dataclass(frozen=True, slots=True)
class Problem:
    """The output to differentiate and the inputs to differentiate by, with their names."""

    original: Graph
    target: Any
    output_name: str
    by: tuple[int, ...]
    names: tuple[str, ...]

    @property
    def inputs(self) -> list[Variable]:
        """The inputs to differentiate by."""
        return [self.original.fgraph.inputs[position] for position in self.by]

    @property
    def source(self) -> str:
        """The name of the graph."""
        return self.original.source


def problem_of(
    graph: GraphObject,
    order: int,
    wrt: Sequence[str | int | Variable] | None,
    output: int | str,
) -> Problem:
    """Resolve ``output`` and ``wrt``; refuse what has no derivative or would get a wrong one."""
    original = as_graph(graph)
    source = original.source
    if order < 1:
        raise GradientError(
            f"there is no derivative of order {order}", where=source, hint="ask for 1 or more"
        )
    position = output_position(original, output)
    target = original.outputs[position]
    inputs = original.fgraph.inputs
    single = FunctionGraph(inputs, [target], clone=False)
    refuse_in_place(single, source)
    by = tuple(input_positions(original, target, wrt, graph))
    names = tuple(input_names(inputs)[i] for i in by)
    only = replace(original, fgraph=single, output_names=(output_names(original)[position],))
    chosen = tuple(inputs[i] for i in by)
    refuse_complex(chosen, names, target, source)
    refuse_trimmed(chosen, target, source)
    run_pipeline(single, [InitialRowsAlone()], strict=True)
    return Problem(only, single.outputs[0], output_names(original)[position], by, names)


def strategy_named(name: Strategy | str, source: str) -> Strategy:
    """Return the strategy of a name; refuse what is none."""
    try:
        return Strategy(name)
    except ValueError:
        known = ", ".join(strategy.value for strategy in Strategy)
        raise GradientError(
            f"there is no strategy {name!r}", where=source, hint=f"strategies: {known}"
        ) from None


def refuse_strategy(problem: Problem, strategy: Strategy, *, full: bool) -> None:
    """Refuse a strategy that does not build this derivative."""
    if strategy is Strategy.REVERSE:
        return
    if full and strategy is not Strategy.FORWARD_OVER_REVERSE:
        raise GradientError(
            f"strategy {strategy} builds no whole Hessian",
            where=problem.source,
            hint="use strategy forward-over-reverse or reverse",
        )
    for truncated in truncations(problem.inputs, problem.target):
        raise GradientError(
            f"{truncated}, which only reverse mode does",
            where=problem.source,
            hint="use strategy reverse",
        )
