"""Functions of numbers that a compiler can compute for several entries of an array at a time.

Numba calls the C library for each entry of ``exp(x)``. The functions here are arithmetic without
branches, which LLVM turns into vector instructions (`scanopt_cli.loop.numba_math`). Of one number
after the other only the hyperbolic tangent is faster than the C library's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.scalar.basic import (
    Composite,
    Exp,
    Expm1,
    Log,
    Log1p,
    ScalarOp,
    Tanh,
    UnaryScalarOp,
    same_out,
)
from pytensor.scalar.math import Sigmoid
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.rewriting.fused_elemwise import FusedElemwise
from pytensor.tensor.rewriting.scalarize import ScalarizedElemwise

_FOR_NUMBERS: Mapping[type[Op], str] = {Tanh: "tanh"}
_FOR_ARRAYS: Mapping[type[Op], str] = {
    **_FOR_NUMBERS,
    Exp: "exp",
    Expm1: "expm1",
    Log: "log",
    Log1p: "log1p",
    Sigmoid: "sigmoid",
}
IN_PYTHON: Mapping[str, Callable[[Any], Any]] = {
    "exp": np.exp,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
}
"""Every function, by name."""


class VectorFunction(UnaryScalarOp):
    """A function of a float64, by name."""

    __props__ = ("function",)

    def __init__(self, function: str) -> None:
        super().__init__(same_out, name=f"vector_{function}")
        self.function = function

    def impl(self, x: Any) -> Any:
        """Compute the function."""
        return IN_PYTHON[self.function](x)

    def c_code(self, *_: Any) -> str:
        """Raise, since linkers that compile C use the C library's functions."""
        raise NotImplementedError


class VectorComposite(Composite):
    """Arithmetic that is compiled into the loop over the entries of arrays.

    LLVM vectorizes no loop that calls a function.
    """


def use_vector_functions(graph: FunctionGraph) -> None:
    """Use `VectorFunction` in the arithmetic of ``graph``, of arrays or of numbers."""
    for node in graph.toposort():
        op = _replaced(node, _FOR_NUMBERS)
        if op is not node.op:
            new = Apply(op, node.inputs, [v.type() for v in node.outputs])
            graph.replace_all(list(zip(node.outputs, new.outputs, strict=True)))


def _replaced(node: Apply, names: Mapping[type[Op], str]) -> Any:
    """Return the Op of a node with the functions of ``names`` replaced."""
    op: Any = node.op
    if isinstance(op, FusedElemwise | ScalarizedElemwise):
        graph = op.fgraph.unfreeze()
        use_vector_functions(graph)
        frozen: Any = graph.freeze()
        return op if frozen == op.fgraph else op.clone_with_inner_graph(frozen)
    if isinstance(op, Elemwise):
        if node.outputs[0].type.ndim:
            names = _FOR_ARRAYS
        scalar = _replaced(op.make_scalar_node(*node.inputs), names)
        return op if scalar is op.scalar_op else Elemwise(scalar, dict(op.inplace_pattern))
    if isinstance(op, Composite):
        graph = op.fgraph.unfreeze()  # type: ignore[attr-defined]
        changed = False
        for inner in graph.toposort():
            new = _replaced(inner, names)
            if new is not inner.op:
                graph.replace(inner.outputs[0], new(*inner.inputs))
                changed = True
        if not changed and names is _FOR_NUMBERS:
            return op
        return VectorComposite(graph.inputs, graph.outputs)
    if isinstance(op, ScalarOp) and type(op) in names:
        kinds = {v.type.dtype for v in (*node.inputs, *node.outputs)}
        return VectorFunction(names[type(op)]) if kinds == {"float64"} else op
    return op
