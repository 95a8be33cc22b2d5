"""`grad`: the n-th derivative of a graph, and the record of the Scans that it is made of."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph

from scanopt_cli.errors import GradientError
from scanopt_cli.gradients.blame import blamed
from scanopt_cli.gradients.connections import needed
from scanopt_cli.gradients.derivative import Derivative, OrderReport
from scanopt_cli.gradients.inference import infer
from scanopt_cli.gradients.lineage import Lineage
from scanopt_cli.gradients.pedigree import pedigree_of
from scanopt_cli.gradients.reach import Reach
from scanopt_cli.gradients.refusals import (
    refuse_in_place,
    refuse_trimmed,
    refuse_truncated,
    truncations,
)
from scanopt_cli.gradients.reverse import derivatives
from scanopt_cli.gradients.selecting import (
    input_names,
    input_positions,
    output_names,
    output_position,
)
from scanopt_cli.graphs.graph import Graph, GraphLike, as_graph
from scanopt_cli.graphs.statistics import Statistics, statistics

# From so many Scans on a reader is told why there are so many.
_MANY_SCANS = 32
# PyTensor differentiates by recursion, a few calls for each node.
_CALLS_A_NODE = 10


def grad(
    graph: GraphLike,
    order: int = 1,
    *,
    wrt: Sequence[str | int | Variable] | None = None,
    output: int | str = 0,
) -> Derivative:
    """Build the ``order``-th derivative of one output of ``graph`` by repeated reverse mode.

    With f the sum of all entries of the output (the output itself, if it is a scalar) and D the
    derivative in the direction in which every entry of every input of ``wrt`` grows alike, the
    result for an input x is the gradient of D^(order-1) f by x. So for one scalar input it is
    exactly the n-th derivative; order 2 is the Hessian over all of ``wrt`` times a vector of ones;
    and where each entry of the output depends on its own entry of x only, it holds each entry's
    n-th derivative.

    Parameters
    ----------
    graph
        A loaded graph, a FunctionGraph or an ``(inputs, outputs)`` pair. It is left as it was.
    order
        1 for the gradient. Each order doubles the loops.
    wrt
        Inputs to differentiate by: names, positions (``2`` or ``"#2"``) or variables of ``graph``.
        By default every floating-point input that the output depends on, former shared variables
        included.
    output
        The output to differentiate: its position, its name or ``"#2"``.

    Returns
    -------
    Derivative
        The derivative's graph has the inputs of ``graph``, and for each of ``wrt`` one output of
        the shape and dtype of that input, called ``d2 out/d x``.

    Raises
    ------
    GradientError
        If ``order`` is below 1; if an input or the output does not exist, holds no floats or is not
        connected; if an Op has no derivative; or if PyTensor would get the derivative wrong: of a
        Scan whose buffers do not hold every step, of a graph that works in place, and of a
        truncated gradient.
    ScanoptError
        If ``graph`` is no graph.
    """
    original = as_graph(graph)
    source = original.source
    if order < 1:
        raise GradientError(
            f"there is no derivative of order {order}", where=source, hint="ask for 1 or more"
        )
    position = output_position(original, output)
    target: Any = original.outputs[position]
    called = output_names(original)[position]
    base = FunctionGraph(original.inputs, [target], clone=False)
    refuse_in_place(base, source)
    by = input_positions(original, target, wrt, graph)
    inputs = [original.inputs[i] for i in by]
    names = tuple(input_names(original.inputs)[i] for i in by)
    refuse_trimmed(inputs, target, source)
    notes = _notes(order, called, target, inputs)

    reach = Reach(base)
    lineage = Lineage(infer(reach.scans, reach))
    orders = [_report(0, base, original, lineage, [called])]
    steps = derivatives(target, inputs, lineage)
    results: list[Variable] = [target]
    for number in range(1, order + 1):
        if number > 1:
            refuse_truncated(inputs, results, source)
            notes += _zeros(number, results, inputs, names)
        try:
            with _recursion(orders[-1].statistics):
                results = next(steps)
        except Exception as error:
            raise blamed(error, inputs, names, results, source) from error
        symbol = "d" if number == 1 else f"d{number}"
        fgraph = FunctionGraph(original.inputs, results, clone=False)
        titles = [f"{symbol} {called}/d {name}" for name in names]
        orders.append(_report(number, fgraph, original, lineage, titles))
    scans = orders[-1].statistics.scans
    if scans >= _MANY_SCANS:
        notes.append(f"{scans} Scans: each order of repeated reverse mode doubles them")
    return Derivative(output=called, wrt=names, orders=tuple(orders), notes=tuple(notes))


def _report(
    order: int, fgraph: FunctionGraph, original: Graph, lineage: Lineage, titles: list[str]
) -> OrderReport:
    """Count a graph, and keep a copy that shares nothing with those of other orders."""
    copied, copies = fgraph.clone_get_equiv(check_integrity=False, attach_feature=False)
    nodes: dict[Apply, Any] = {old: new for old, new in copies.items() if isinstance(old, Apply)}
    return OrderReport(
        order=order,
        statistics=statistics(copied),
        pedigree=pedigree_of(copied, lineage.within(nodes)),
        graph=replace(original, fgraph=copied, output_names=tuple(titles)),
    )


def _notes(order: int, called: str, target: Variable, inputs: Sequence[Variable]) -> list[str]:
    """Say what is computed where that is not the plain derivative of a scalar by a scalar."""
    notes = []
    if target.type.ndim:
        notes.append(f"{called} is not a scalar: what is differentiated is the sum of its entries")
    if order > 1 and (len(inputs) > 1 or inputs[0].type.ndim):
        notes.append(
            "each order after the first is the gradient of the sum of all entries of the order "
            "before, over all inputs: order 2 is the Hessian times a vector of ones"
        )
    return notes + list(dict.fromkeys(truncations(inputs, target)))


def _zeros(
    order: int, results: Sequence[Variable], inputs: Sequence[Variable], names: Sequence[str]
) -> list[str]:
    """Say by which inputs the next order is zero, since ``results`` do not depend on them."""
    smooth = needed(results)
    return [
        f"order {order} is zero for {name}: order {order - 1} does not depend on it smoothly"
        for variable, name in zip(inputs, names, strict=True)
        if variable not in smooth
    ]


@contextmanager
def _recursion(counts: Statistics) -> Iterator[None]:
    """Let PyTensor recurse through as many nodes as there are."""
    before = sys.getrecursionlimit()
    nodes = counts.outer_nodes + counts.inner_nodes
    sys.setrecursionlimit(before + _CALLS_A_NODE * nodes)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
