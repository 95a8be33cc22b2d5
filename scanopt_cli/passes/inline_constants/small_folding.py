"""Folds constants in a body that got some more."""

from __future__ import annotations

from typing import Any

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph, Output
from pytensor.graph.op import HasMultipleInnerGraph
from pytensor.graph.rewriting.basic import NodeProcessingGraphRewriter, in2out, node_rewriter
from pytensor.tensor.rewriting.basic import constant_folding

from scanopt_cli.ir.inner_graphs import inner_graphs
from scanopt_cli.ir.interning import has_negative_zero
from scanopt_cli.ir.slots import SlotView
from scanopt_cli.passes.inline_constants.uniform_rows import LARGEST


def fold(view: SlotView) -> None:
    """Fold constants in the unfrozen body, in place."""
    inputs = [variable for slot in view.slots for variable in slot.inner_inputs]
    body = FunctionGraph(inputs, view.inner_outputs(), clone=False)
    _folding.rewrite(body)
    view.set_inner_outputs(list(body.outputs))


@node_rewriter(None)  # type: ignore[untyped-decorator]
def _fold_small(fgraph: FunctionGraph, node: Apply) -> Any:
    """Apply PyTensor's constant folding if the result is small and not an output of the body.

    A folded output would have a narrower type than the state that it updates.
    """
    # Evaluating an inner graph may cost any amount of time, so it is left to run time.
    scalar_op = getattr(node.op, "scalar_op", None)
    if inner_graphs(node.op) or isinstance(scalar_op, HasMultipleInnerGraph):
        return False
    for output in node.outputs:
        shape = getattr(output.type, "shape", ())
        if None in shape or np.prod(shape, dtype=float) > LARGEST:
            return False
        if any(isinstance(reader.op, Output) for reader, _ in fgraph.clients[output]):
            return False
    folded = constant_folding.transform(fgraph, node)
    return False if folded and any(map(has_negative_zero, folded)) else folded


_folding = in2out(
    _fold_small,
    ignore_newtrees=True,
    # A node that raises (an index out of range, say) stays: it may only raise if the loop runs.
    failure_callback=NodeProcessingGraphRewriter.warn_ignore,
)
