"""Random graphs without end, by a seed, as the property tests draw them, but outside of a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from random import Random
from typing import Any

import pytensor.tensor as pt
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import applys_between
from pytensor.scan.op import Scan

from scanopt_cli.ir.graph import Graph, from_io
from support.generated.applied_graphs import AppliedGraphs, applied_graphs
from support.generated.strategies import GeneratedScan, scan_graphs

_AT_ONCE = 25
"""Hypothesis begins with small examples, and later varies those that it had: runs are short."""
_FEWEST, _MOST = 2, 8
"""How many random loops make one graph of several."""


def drawn[T](strategy: SearchStrategy[T], start: int) -> Iterator[T]:
    """Yield what a strategy draws, the same for the same seed in every process."""
    for number in count(start):
        yield from _some(strategy, number)


def _some[T](strategy: SearchStrategy[T], number: int) -> list[T]:
    found: list[T] = []

    @seed(number)
    @settings(
        max_examples=_AT_ONCE,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        derandomize=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(example: T) -> None:
        found.append(example)

    collect()
    return found


def distinct_loops(start: int, **features: bool) -> Iterator[GeneratedScan]:
    """Yield random loops, each of another recipe."""
    seen: set[str] = set()
    for each in drawn(scan_graphs(**features), start):
        if each.recipe not in seen:
            seen.add(each.recipe)
            yield each


def loops(start: int) -> Iterator[Graph]:
    """Yield random loops: nested, with conditions, random numbers, in batches, in OpFromGraphs."""
    for each in distinct_loops(start, gradients=False, generators=True):
        yield from_io(each.inputs, each.outputs)


def gradients(start: int) -> Iterator[Graph]:
    """Yield random loops with a gradient."""
    for each in distinct_loops(start):
        if each.program.gradient_of is not None and not each.program.second_gradient:
            yield from_io(each.inputs, each.outputs)


def second_gradients(start: int) -> Iterator[Graph]:
    """Yield random loops with a gradient, and a gradient of its sum."""
    for each in distinct_loops(start):
        if each.program.second_gradient:
            yield from_io(each.inputs, each.outputs)


def applied(start: int) -> Iterator[Graph]:
    """Yield random OpFromGraphs, applied in graphs and in the bodies of loops."""
    for each in _with_loops(start):
        yield from_io(each.inputs, each.outputs)


def applied_gradients(start: int) -> Iterator[Graph]:
    """Yield gradients of such."""
    for each in _with_loops(start):
        yield from_io(each.inputs, _slopes(each))


def _with_loops(start: int) -> Iterator[AppliedGraphs]:
    for each in drawn(applied_graphs(), start):
        if any(isinstance(node.op, Scan) for node in applys_between([], each.outputs)):
            yield each


def _slopes(each: AppliedGraphs) -> list[Variable]:
    slopes: list[Variable] = pt.grad(
        each.cost, each.inputs, disconnected_inputs="ignore", return_disconnected="zero"
    )
    return slopes


def several_loops(start: int) -> Iterator[Graph]:
    """Yield graphs of several random loops, of which some read what others compute."""
    random, source = Random(start), distinct_loops(start)
    while True:
        yield _joined([next(source) for _ in range(random.randint(_FEWEST, _MOST))], random)


def _joined(parts: Sequence[GeneratedScan], random: Random) -> Graph:
    inputs: list[Variable] = []
    outputs: list[Variable] = []
    for number, part in enumerate(parts):
        given_to: dict[Variable, Any] = {}
        for variable in part.inputs:
            same = [output for output in outputs if output.type == variable.type]
            if same and random.random() < 0.5:
                given_to[variable] = random.choice(same)
            else:
                variable.name = f"{variable.name}_{number}"
                inputs.append(variable)
        outputs += clone_replace(part.outputs, given_to) if given_to else part.outputs
    return from_io(inputs, outputs)


DRAWN: dict[str, tuple[float, Callable[[int], Iterator[Graph]]]] = {
    "random loops": (0.4, loops),
    "random loops, gradients": (0.3, gradients),
    "random loops, second gradients": (0.08, second_gradients),
    "random loops, 2 to 8 in a graph": (0.06, several_loops),
    "random OpFromGraphs": (0.09, applied),
    "random OpFromGraphs, gradients": (0.07, applied_gradients),
}
"""Kinds of random graphs: the share of each among them, and what yields it from a seed on."""
