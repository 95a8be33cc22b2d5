"""The code of a whole graph, from the arguments of the function to what it returns.

Importing this module imports the rules of all Ops.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from numba.core import types
from pytensor.graph.basic import Apply, Variable

from scanopt_cli.loop.codegen import (  # noqa: F401
    arrays,
    branches,
    diagonals,
    elementwise,
    factors,
    indexing,
    loops,
    products,
    rows,
)
from scanopt_cli.loop.codegen.equal_loops import equal_loops
from scanopt_cli.loop.codegen.graphs import GraphWriter
from scanopt_cli.loop.codegen.values import Number


def write_graph(
    writer: GraphWriter,
    nodes: Sequence[Apply],
    given: Iterable[tuple[Variable, Any, Any]],
    returned: Iterable[tuple[Variable, Any]],
) -> list[Any]:
    """Write the code of a function, and return what it returns, as Numba represents it.

    Parameters
    ----------
    writer
        Where the code goes.
    nodes
        The nodes of the graph, in order.
    given
        The inputs, each with Numba's type and the code of the argument.
    returned
        The outputs, each with Numba's type.
    """
    writer.equal_loops = equal_loops(nodes)
    for variable, kind, argument in given:
        writer.bind(variable, writer.from_numba(argument, kind, is_owned=False))
    outputs = list(returned)
    writer.write(nodes, [variable for variable, _ in outputs])
    made = [_in_numba(writer, variable, kind) for variable, kind in outputs]
    for variable in list(writer.known):
        writer.drop(variable)
    return made


def _in_numba(writer: GraphWriter, variable: Variable, kind: Any) -> Any:
    """Return an output with a reference for the caller."""
    value = writer.value(variable)
    if isinstance(value, Number) and isinstance(kind, types.Array):
        return writer.in_numba(writer.as_array(value, kind.ndim))
    writer.keep(value)
    return writer.in_numba(value)
