"""Functions of numbers that a compiler can compute for several entries of an array at a time.

Numba calls the C library for each entry of ``exp(x)``. The functions here are arithmetic without
branches, which LLVM turns into vector instructions (`scanopt_cli.loop.llvm_math`). Of one number
after the other only the hyperbolic tangent is faster than the C library's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.scalar.basic import Composite, ScalarOp, exp, expm1, log, log1p, tanh
from pytensor.scalar.math import sigmoid
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.rewriting.fused_elemwise import FusedElemwise
from pytensor.tensor.rewriting.scalarize import ScalarizedElemwise

from scanopt_cli.loop.shifted_sums import ShiftedLog

FUNCTIONS: Mapping[str, Any] = {
    "exp": exp,
    "expm1": expm1,
    "log": log,
    "log1p": log1p,
    "sigmoid": sigmoid,
    "tanh": tanh,
}
"""What PyTensor calls the functions."""
_FOR_NUMBERS: Mapping[type[Op], str] = {type(tanh): "tanh"}
_FOR_ARRAYS: Mapping[type[Op], str] = {type(op): name for name, op in FUNCTIONS.items()}
_IN_GROUPS: Mapping[type[Op], str] = {type(exp): "exp", type(log): "log", ShiftedLog: "log"}
_EVERY: Mapping[type[Op], str] = {**_FOR_ARRAYS, ShiftedLog: "log"}
_FEWEST = 4
"""So many numbers are computed faster in one vector than by the C library."""


class VectorFunction(ScalarOp):
    """A function, by name, of a float, or of each of several, which are one vector.

    Of a float32 it is computed in float64.
    """

    __props__ = ("function", "nin")

    def __init__(self, function: str, count: int = 1) -> None:
        super().__init__(name=f"vector_{function}")
        self.function = function
        self.nin = self.nout = count

    def output_types(self, types: Any) -> Any:
        """Return the types of the results."""
        return tuple(types)

    def impl(self, *numbers: Any) -> Any:
        """Compute the function of each number."""
        found = tuple(FUNCTIONS[self.function].impl(x) for x in numbers)
        return found if self.nout > 1 else found[0]

    def c_code(self, *_: Any) -> str:
        """Raise, since linkers that compile C use the C library's functions."""
        raise NotImplementedError


class VectorComposite(Composite):
    """Arithmetic that is compiled into the loop over the entries of arrays.

    LLVM vectorizes no loop that calls a function.
    """


class WholeArrayFunction(VectorComposite):
    """A `VectorFunction` of some arithmetic, of arrays with a short last axis.

    A kernel computes the arithmetic of all entries, and then the function of as many at a time as
    vectors have, in whatever rows they are.
    """

    @property
    def function(self) -> str:
        """The name of the function."""
        op: Any = self.fgraph.outputs[0].owner.op
        name: str = op.function
        return name

    def argument(self) -> ScalarOp | None:
        """Return the arithmetic; ``None`` if the function is one of an operand itself."""
        graph = self.fgraph.unfreeze()  # type: ignore[attr-defined]
        argument = graph.outputs[0].owner.inputs[0]
        return None if argument.owner is None else VectorComposite(graph.inputs, [argument])


def vector_function(node: Apply) -> VectorFunction | None:
    """Return what computes a function of numbers, whatever computes it in ``node``.

    ``None`` if that is no function that has such code. Of several numbers, it is of each.
    """
    if isinstance(node.op, VectorFunction):
        return VectorFunction(node.op.function)
    name = _name(node, _EVERY)
    return None if name is None else VectorFunction(name)


def _pack(graph: FunctionGraph) -> bool:
    """Compute independent calls of one function as one call of a vector (SLP vectorization).

    Numbers of one level do not depend on each other, if each function is a level above those that
    its argument depends on.
    """
    levels: dict[Variable, int] = {}
    groups: dict[tuple[str, str, int], list[Apply]] = {}
    for node in graph.toposort():
        level = max((levels.get(v, 0) for v in node.inputs), default=0)
        name = _name(node, _IN_GROUPS)
        if name is not None:
            groups.setdefault((name, node.outputs[0].type.dtype, level), []).append(node)
            level += 1
        levels |= dict.fromkeys(node.outputs, level)
    large = {key: nodes for key, nodes in groups.items() if len(nodes) >= _FEWEST}
    for (name, *_), nodes in large.items():
        new = VectorFunction(name, len(nodes)).make_node(*(node.inputs[0] for node in nodes))
        graph.replace_all([(old.outputs[0], v) for old, v in zip(nodes, new.outputs, strict=True)])
    return bool(large)


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
        if names is _FOR_ARRAYS:
            return VectorComposite(graph.inputs, graph.outputs)
        changed = _pack(graph) or changed
        return Composite(graph.inputs, graph.outputs) if changed else op
    name = _name(node, names)
    return op if name is None else VectorFunction(name)


def _name(node: Apply, names: Mapping[type[Op], str]) -> str | None:
    """Return what ``names`` calls the function of a node of floats, ``None`` for another."""
    dtypes = {getattr(v.type, "dtype", None) for v in (*node.inputs, *node.outputs)}
    is_float = dtypes in ({"float32"}, {"float64"})
    return names.get(type(node.op)) if is_float else None
