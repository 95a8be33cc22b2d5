"""What is left on arrays once the loops of a graph are written on numbers, as far as they can be.

The passes that do so run on a copy. A rule that says what would help tries it out here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph

from scanopt_cli.analysis.named_loops import NamedLoop
from scanopt_cli.analysis.step_costs import ArrayOperation, computes, step_cost
from scanopt_cli.errors import PassError
from scanopt_cli.ir.fast_graphs import graph_over
from scanopt_cli.ir.graph import substituted
from scanopt_cli.ir.inner_graphs import core_op, walk
from scanopt_cli.ir.scan_view import is_loop, view_of
from scanopt_cli.ir.slots import SlotView
from scanopt_cli.pipeline.grammar import parse
from scanopt_cli.pipeline.runner import run_pipeline
from scanopt_cli.remarks import Code
from scanopt_cli.rules.titled_copies import titled_copy, titles_of

_TO_NUMBERS = (
    "remove-unused,push-out-products,push-out-sums,push-out{cheap=false},inline-constants,"
    "hoist-states,remove-unused,scan-to-loop,trace-to-last,remove-unused,hoist-states,"
    "unroll-small{always=true}"
)
"""Of the preset ``loop``, the passes that write a step on numbers, and those that take out of it
what needs no loop."""

_LARGEST = 36
"""The most entries of arrays that a step which may run on numbers computes."""
_SOLVERS = "pytensor.tensor.linalg"


@dataclass(frozen=True, slots=True)
class LoweredLoop:
    """What a loop becomes.

    Attributes
    ----------
    arrays
        The operations on arrays that a step still computes.
    lacks_lengths
        Whether some are left for no other reason than that lengths are not known.
    solves
        Whether a step decomposes a matrix, or solves by one, which takes longer than a call.
    """

    arrays: tuple[ArrayOperation, ...]
    lacks_lengths: bool
    solves: bool

    @property
    def runs_on_numbers(self) -> bool:
        """Whether a step computes no arrays."""
        return not self.arrays


def lowered_loops(
    fgraph: FunctionGraph,
    loops: Sequence[NamedLoop],
    inputs: Mapping[Variable, Variable] | None = None,
    *,
    strict: bool | None = None,
) -> dict[str, LoweredLoop]:
    """Return what some Scans in ``fgraph`` become, by their titles, but those around others.

    ``inputs`` are given to them in place of inputs of the graph. All small arrays become numbers,
    also those that compiled code has in registers as they are. ``strict`` is that of
    `run_pipeline`; without it, nothing is returned of a graph that the passes cannot turn.
    """
    _, named = titled_copy(fgraph, loops)
    outputs = substituted(named, inputs or {})
    roots = [(inputs or {}).get(variable, variable) for variable in fgraph.inputs]
    work = graph_over(roots, outputs)
    try:
        runs = run_pipeline(work, parse(_TO_NUMBERS), rounds=1, strict=strict)
    except PassError:
        if strict:
            raise
        return {}  # PyTensor cannot hold such a body
    lacking = {
        title
        for run in runs
        for remark in run.remarks
        if remark.code is Code.ARRAYS_KEPT
        for title in titles_of(remark.scan.rpartition("/")[-1], loops)
    }
    found = {}
    for node in walk(work):
        if not is_loop(node):
            continue
        view = view_of(node)
        nodes = [n for n in view.op.fgraph.toposort() if computes(n.op)]
        if any(map(is_loop, nodes)):
            continue
        for title in titles_of(node.op.name, loops):
            found[title] = LoweredLoop(
                arrays=step_cost(view, nodes=nodes).arrays,
                lacks_lengths=title in lacking,
                solves=any(type(core_op(n.op)).__module__.startswith(_SOLVERS) for n in nodes),
            )
    return found


def may_run_on_numbers(view: SlotView) -> bool:
    """Whether a step computes on arrays, and on none that is large."""
    nodes = [node for node in view.op.fgraph.toposort() if computes(node.op)]
    found = step_cost(view, nodes=nodes).arrays
    return bool(found) and all((elements(operation) or 0) <= _LARGEST for operation in found)


def elements(operation: ArrayOperation) -> int | None:
    """Return the elements of the largest result of an operation, ``None`` if it is not known."""
    sizes = []
    for shape in operation.shapes:
        lengths = [length for length in shape.strip("()").split(",") if length]
        if not all(length.isdecimal() for length in lengths):
            return None
        sizes.append(prod(map(int, lengths)))
    return max(sizes, default=1)
