"""Write out the steps of short loops in loops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pytensor.tensor as pt
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.replace import graph_replace
from pytensor.tensor.subtensor import Subtensor
from pytensor.tensor.type import DenseTensorType

from scanopt_cli.analysis.accesses.indices import RowIndex
from scanopt_cli.ir.indexing import indices_of
from scanopt_cli.ir.inner_graphs import walk
from scanopt_cli.loop.operator_base import LoopView
from scanopt_cli.pipeline.contract import PassContext, check_from_zero
from scanopt_cli.pipeline.loop_passes import TracedLoopPass
from scanopt_cli.remarks import Code, Why, because

_MOST_NODES = 200
"""How many nodes the steps of a loop may have together; a step is compiled as one function."""


@dataclass(frozen=True)
class UnrollLoops(TracedLoopPass):
    """Write out the steps of a short TracedLoop in a loop, one after the other.

    What the inner loop would write into arrays, and read again in the next one, are then values of
    one step; ``unroll-small`` makes numbers of those that are small.

    Legal cases:

    1. A loop of a constant number of steps, up to ``steps``, in the body of another loop. A row of
       a trace becomes the value of its step, and rows become a stack of values.

    Preconditions: there is a step, no condition may end the loop, no step works in place, the
    traces that are read are arrays, and the steps have at most 200 nodes together.

    Out of scope: loops that are in no other loop.
    """

    name: ClassVar[str] = "unroll-loops"
    accepts_in_place: ClassVar[bool] = False
    steps: int = 16
    """the most steps of a loop that is written out"""

    def __post_init__(self) -> None:
        """Check the number of steps."""
        check_from_zero(steps=self.steps)

    def rewrite(self, view: LoopView, context: PassContext) -> dict[Variable, Variable] | None:
        """Return replacements for all outputs, from the steps."""
        if not context.path or not isinstance(view.n_steps, Constant):
            return None
        count = int(view.n_steps.data)
        if not 0 < count <= self.steps:
            return None
        size = sum(1 for _ in walk(view.op.fgraph))
        if size * count > _MOST_NODES:
            context.missed(view, Code.LOOP_LEFT, because(Why.STEP_LARGE, operations=_MOST_NODES))
            return None
        if view.is_while:
            context.missed(view, Code.LOOP_LEFT, because(Why.LOOP_STOPS))
            return None
        read = [slot for slot in view.outputs() if context.clients(slot.outer_output)]
        if not all(isinstance(slot.inner_outputs[0].type, DenseTensorType) for slot in read):
            context.missed(view, Code.LOOP_LEFT, because(Why.TRACE_OF_NO_TENSOR))
            return None
        context.passed(view, Code.STEPS_WRITTEN_OUT, count=count)
        return _written_out(view, count, context)


def _written_out(view: LoopView, count: int, context: PassContext) -> dict[Variable, Variable]:
    """Return what replaces the outputs of a loop of ``count`` steps, and readers of its traces."""
    op = view.op
    _, states, constants = op.split(view.node.inputs)
    rows, traced = [list(states)], []
    for i in range(count):
        body = op.body
        given = dict(zip(body.constants, constants, strict=True))
        given |= dict(zip(body.states, rows[-1], strict=True))
        given[body.index] = pt.constant(i, dtype="int64")
        made = graph_replace(body.outputs, given, strict=False)
        rows.append(made[: op.n_states])
        traced.append(made[op.n_states :])
    replacements: dict[Variable, Variable] = {}
    traces = [*zip(*rows, strict=True), *zip(*traced, strict=True)]
    for slot, values in zip(view.outputs(), traces, strict=False):
        if slot.last is not None:
            replacements[slot.last] = values[-1]
        if slot.outer_output is not None and context.clients(slot.outer_output):
            replacements |= _read(slot.outer_output, values, context)
    if view.n_done is not None:
        replacements[view.n_done] = pt.constant(count, dtype="int64")
    return replacements


def _read(rows: Variable, values: Sequence[Any], context: PassContext) -> dict[Variable, Variable]:
    """Return what replaces ``rows``, which are ``values``, and the readers of some of them.

    No slice of constant bounds is left: PyTensor would take a wrong row of some, now that the
    number of rows is known (tests/upstream/test_beside_loops.py).
    """
    found: dict[Variable, Variable] = {}
    if values:
        found[rows] = pt.stack([pt.as_tensor_variable(value) for value in values])
    for node, position in context.clients(rows):
        if position or not isinstance(getattr(node, "op", None), Subtensor):
            continue
        first, *rest = indices_of(node)
        place = RowIndex(first).in_numbers
        (output,) = node.outputs
        if isinstance(place, slice) and not rest:
            found |= _read(output, values[place], context)
        elif isinstance(place, int) and -len(values) <= place < len(values):
            value = pt.as_tensor_variable(values[place])
            found[output] = value[tuple(rest)] if rest else value
    return found
