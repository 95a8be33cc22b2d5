"""What feeds a loop, wherever it is: in the graph, in the body of a loop, in an OpFromGraph.

The graph around is evaluated without rewrites. A loop around is run up to the step in which the
loop inside is wanted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, pairwise
from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FrozenFunctionGraph, FunctionGraph

from scanopt_cli.analysis.named_loops import NamedLoop
from scanopt_cli.ir.inner_graphs import body_of, op_name
from scanopt_cli.ir.scan_view import batch_ndim, is_loop, view_of
from scanopt_cli.tracing.stepping import StepFunction, StepGraph, steps
from scanopt_cli.verification.modes import plain_mode
from scanopt_cli.verification.worker import compiled


class UnreachableError(Exception):
    """A loop that is not run, or cannot be traced where it is."""


def holders(loop: NamedLoop) -> list[Apply]:
    """Return the nodes that a loop is in, from the outermost one on."""
    found: list[Apply] = []
    holder = loop.holder
    while holder is not None:
        found.insert(0, holder.node)
        holder = holder.around
    return found


def loops_around(loop: NamedLoop) -> list[NamedLoop]:
    """Return the loops around a loop, from the outermost one on."""
    found: list[NamedLoop] = []
    around = loop.parent
    while around is not None:
        found.insert(0, around)
        around = around.parent
    return found


class Outside:
    """Evaluates what the nodes of a graph read."""

    def __init__(
        self, inputs: Sequence[Variable], nodes: Sequence[Apply], *, with_c: bool = False
    ) -> None:
        self._nodes = list(dict.fromkeys(nodes))
        self._with_c = with_c
        read = [variable for node in self._nodes for variable in node.inputs]
        graph = FunctionGraph(list(inputs), read, clone=True)
        self._function = compiled(graph, plain_mode(with_c=with_c))
        self._inside: dict[tuple[int, ...], StepFunction] = {}

    def values(self, arguments: Sequence[Any]) -> Mapping[Apply, list[Any]]:
        """Return what each node reads; ``arguments`` may be overwritten."""
        values = iter(self._function(*arguments))
        return {node: list(islice(values, len(node.inputs))) for node in self._nodes}

    def into(
        self, loop: NamedLoop, values: Mapping[Apply, list[Any]], outer_steps: Sequence[int]
    ) -> list[Any]:
        """Return what a loop reads, given what the nodes of the graph read.

        ``outer_steps`` are the steps of the loops around it, from the outermost one on.

        Raises
        ------
        UnreachableError
            If a loop around it does not run that step, or it is in what is no loop or OpFromGraph.
        """
        chain = [*holders(loop), loop.view.node]
        found = values[chain[0]]
        left = iter(outer_steps)
        for holder, inner in pairwise(chain):
            body = body_of(holder.op)
            if body is None or (batch_ndim(holder) and not is_loop(holder)):
                raise UnreachableError(f"loops in {op_name(holder.op)} cannot be traced")
            function = self._function_of(holder, inner, body)
            if is_loop(holder):
                found = _read_in_step(holder, len(inner.inputs), found, function, next(left))
            else:
                found = function(found)[len(body.outputs) :]
        return found

    def _function_of(self, holder: Apply, inner: Apply, body: FrozenFunctionGraph) -> StepFunction:
        key = (id(holder), id(inner))
        if key not in self._inside:
            graph = StepGraph.of(body, inner.inputs)
            self._inside[key] = StepFunction(graph, with_c=self._with_c)
        return self._inside[key]


def _read_in_step(
    holder: Apply, count: int, values: Sequence[Any], function: StepFunction, wanted: int
) -> list[Any]:
    done: Iterator[Any] = steps(view_of(holder), function, values)
    step = next(islice(done, wanted, None), None)
    if step is None:
        n_steps = sum(1 for _ in steps(view_of(holder), function, values))
        ran = "no step" if n_steps == 0 else f"{n_steps} steps"
        raise UnreachableError(f"{op_name(holder.op)} runs {ran}, so there is no step {wanted}")
    return list(step.outputs[-count:])
