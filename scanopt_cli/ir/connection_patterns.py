"""Which outputs of a node or an inner graph are connected to which inputs, in PyTensor's sense.

A connection pattern is a table with a row for each input and a column for each output. PyTensor
computes it in O(nodes x inputs), that of a Scan in O(outputs^4). Here, the inputs that a variable
is connected to are the bits of one number.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import AbstractFunctionGraph
from pytensor.scan.op import Scan

from scanopt_cli.ir.scan_view import ScanView

type Pattern = Sequence[Sequence[bool]]


def connection_pattern(node: Apply) -> Pattern:
    """Return the connection pattern of ``node``, as `pytensor.grad` uses it.

    That of a Scan or an OpFromGraph is stored where PyTensor stores what it computes itself: in the
    tag of the node, or in the Op. So PyTensor does not compute it again.
    """
    op = node.op
    if isinstance(op, Scan):
        if not hasattr(node.tag, "connection_pattern"):
            node.tag.connection_pattern = _pattern_of_scan(node)
    elif isinstance(op, OpFromGraph) and op._connection_pattern is None:
        op._connection_pattern = pattern_of_graph(op.fgraph).tolist()
    if hasattr(op, "connection_pattern"):
        known: Pattern = op.connection_pattern(node)
        return known
    return [[True] * len(node.outputs)] * len(node.inputs)


def declared_pattern(op: OpFromGraph) -> Pattern | None:
    """Return the connection pattern that the user gave ``op``; ``None`` if its graph has the same.

    PyTensor stores a pattern that it has computed in the attribute of those that users give, so
    only a comparison tells them apart.
    """
    known: Pattern | None = op._connection_pattern
    if known is None or np.array_equal(known, pattern_of_graph(op.fgraph)):
        return None
    return known


def pattern_of_graph(graph: AbstractFunctionGraph) -> np.ndarray:
    """Return the connection pattern of an inner graph."""
    # The inputs that a variable is connected to, as the bits of a number.
    reached: dict[Variable, int] = {v: 1 << bit for bit, v in enumerate(graph.inputs)}
    for node in graph.toposort():
        rows = connection_pattern(node)
        for column, output in enumerate(node.outputs):
            bits = 0
            for row, variable in zip(rows, node.inputs, strict=True):
                if row[column]:
                    bits |= reached.get(variable, 0)
            reached[output] = bits
    pattern = np.zeros((len(graph.inputs), len(graph.outputs)), bool)
    for column, output in enumerate(graph.outputs):
        digits = np.array(list(f"{reached.get(output, 0):b}"[::-1])) == "1"
        pattern[: len(digits), column] = digits[: len(pattern)]
    return pattern


def _pattern_of_scan(node: Apply) -> list[list[bool]]:
    """Return the connection pattern of a Scan: Warshall's algorithm, a row of bits at a time."""
    body = node.op.fgraph
    within = pattern_of_graph(body)
    row_of = {variable: row for row, variable in enumerate(body.inputs)}
    column_of = {variable: column for column, variable in enumerate(body.outputs)}
    view = ScanView.of(node)
    reached = np.stack(
        [
            within[:, [column_of[variable] for variable in slot.inner_outputs]].any(axis=1)
            for slot in view.outputs()
        ],
        axis=1,
    )
    connected = np.zeros((len(node.inputs), len(node.outputs)), bool)
    for row, slot in enumerate(view.slots, start=1):
        connected[row] = reached[[row_of[variable] for variable in slot.inner_inputs]].any(axis=0)
    # A state that reaches an output hands on all that reaches the state.
    for column, state in enumerate(view.outputs()):
        through = connected[:, column]
        connected[through] |= connected[1 + view.slots.index(state)]
    known: list[list[bool]] = connected.tolist()
    return known
