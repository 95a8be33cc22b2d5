"""How many terms sums and products have, multiplied out."""

from __future__ import annotations

from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.scalar.basic import Add, Mul, Neg, Reciprocal, Sub, TrueDiv
from pytensor.tensor.elemwise import DimShuffle, Elemwise

MOST_TERMS = 10_000
_SUMS_AND_PRODUCTS = (Add, Mul, Neg, Reciprocal, Sub, TrueDiv)


def most_terms(fgraph: FunctionGraph) -> int:
    """Return how many terms or factors the longest sum or product of ``fgraph`` has.

    Nested sums count as one sum, and a sum that occurs in another twice counts twice, since
    PyTensor expands them like this.
    """
    found: dict[Variable, int] = {}
    for node in fgraph.toposort():
        op = node.op
        count = 1
        if isinstance(op, Elemwise) and isinstance(op.scalar_op, _SUMS_AND_PRODUCTS):
            count = sum(found.get(variable, 1) for variable in node.inputs)
        elif isinstance(op, DimShuffle):
            count = found.get(node.inputs[0], 1)
        found.update(dict.fromkeys(node.outputs, count))
    return max(found.values(), default=0)
