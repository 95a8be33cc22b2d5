"""Arithmetic of arrays with short axes, as it is computed in a loop that Numba compiles.

PyTensor fuses elementwise arithmetic with the sums and the indices around it, in one loop over the
entries. LLVM makes vectors of the entries of its last axis. Where that has three entries, say, none
is made, and a function such as exp is computed of one number after the other. Here it is unfused,
so that each function is an operation: its argument is computed first, in a buffer of the loop, and
then the function of all entries of the buffer, as of one long row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import io_toposort
from pytensor.scalar.basic import AND, OR, XOR, Add, Composite, Maximum, Minimum, Mul
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.rewriting.fused_elemwise import FusedElemwise
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor
from pytensor.tensor.type import DenseTensorType

from scanopt_cli.loop.costs import is_costly
from scanopt_cli.loop.index_arrays import index_arrays, is_write
from scanopt_cli.loop.vector_math import VectorComposite, VectorFunction, WholeArrayFunction

_REDUCTIONS = (Add, Mul, AND, OR, XOR, Maximum, Minimum)
_SHORT = 32
"""A last axis of so many entries is computed in vectors by LLVM."""


def unfuse(graph: FunctionGraph) -> None:
    """Unfuse what PyTensor fused, where kernels compute each of the operations."""
    for node in graph.toposort():
        if isinstance(node.op, FusedElemwise):
            inner = node.op.fgraph
            if all(map(_is_for_kernels, inner.apply_nodes)):
                made = inner.bind(dict(zip(inner.inputs, node.inputs, strict=True)))
                graph.replace_all(list(zip(node.outputs, made, strict=True)))


def _is_for_kernels(node: Apply) -> bool:
    """Whether kernels compute, or read, what a node makes."""
    if not all(isinstance(v.type, DenseTensorType) and v.type.ndim for v in node.outputs):
        return False
    if isinstance(node.op, AdvancedIncSubtensor):
        return is_write(node)
    if isinstance(node.op, AdvancedSubtensor):
        return index_arrays(node) is not None
    return isinstance(node.op, Elemwise | DimShuffle) or _is_reduction(node)


def _is_reduction(node: Apply) -> bool:
    """Whether a kernel computes what a node makes: a reduction of some axes, not of all."""
    op: Any = node.op
    return (
        isinstance(op, CAReduce)
        and isinstance(op.scalar_op, _REDUCTIONS)
        and isinstance(node.inputs[0].type, DenseTensorType)
        and node.outputs[0].type.ndim > 0
        and not node.outputs[0].type.dtype.startswith("complex")
        and getattr(op, "acc_dtype", None) in (None, node.outputs[0].type.dtype)
    )


def split_functions(graph: FunctionGraph) -> None:
    """Make nodes of their own of the functions in elementwise arithmetic with a short last axis."""
    for node in graph.toposort():
        scalar_op = getattr(node.op, "scalar_op", None)
        if not isinstance(node.op, Elemwise) or isinstance(scalar_op, WholeArrayFunction):
            continue
        if isinstance(scalar_op, VectorComposite | VectorFunction) and _is_short(node):
            made = _split(node)
            if made is not None:
                graph.replace_all(list(zip(node.outputs, made, strict=True)))


def _is_short(node: Apply) -> bool:
    """Whether the last axis of the result of a node is short, as far as is known."""
    shape = node.outputs[0].type.shape
    is_row = len(shape) == 1
    return bool(shape) and (not is_row if shape[-1] is None else shape[-1] < _SHORT)


def _split(node: Apply) -> list[Variable] | None:
    """Return what a node computes, ``None`` if it is not to be split."""
    op: Any = node.op
    if isinstance(op.scalar_op, VectorFunction):
        inputs: Sequence[Variable] = op.make_scalar_node(*node.inputs).inputs
        inputs = [v.type() for v in inputs]
        outputs: Sequence[Variable] = op.scalar_op.make_node(*inputs).outputs
    else:
        graph = op.scalar_op.fgraph.unfreeze()
        inputs, outputs = graph.inputs, graph.outputs
    functions = [n for n in io_toposort(inputs, outputs) if isinstance(n.op, VectorFunction)]
    if not functions:
        return None
    known: dict[Variable, Any] = dict(zip(inputs, node.inputs, strict=True))
    computed: set[Apply] = set()

    def of_arrays(kind: type[Composite], values: list[Variable]) -> list[Any] | None:
        """Return arrays of values, unless a costly function would be computed a second time."""
        nodes = io_toposort(list(known), values)
        needed = [n for n in nodes if is_costly(Elemwise(n.op))]
        if not computed.isdisjoint(needed):
            return None
        computed.update(n for n in needed if not isinstance(n.op, VectorFunction))
        reached = {*values, *(v for node in nodes for v in node.inputs)}
        read = [v for v in known if v in reached]
        if not read:
            return None
        fresh = {v: v.type() for v in read}
        made: Any = graph_replace(values, fresh, strict=False)
        node = Elemwise(kind(list(fresh.values()), made)).make_node(*(known[v] for v in read))
        return list(node.outputs)

    for function in functions:
        found = of_arrays(WholeArrayFunction, [function.outputs[0]])
        if found is None:
            return None
        (known[function.outputs[0]],) = found
    last = [v for v in outputs if v not in known]
    found = of_arrays(VectorComposite, last) if last else []
    if found is None:
        return None
    known |= zip(last, found, strict=True)
    made = [known[v] for v in outputs]
    # An operand that a function does not read may have lengths that its result lacks.
    has_types = all(new.type == old.type for new, old in zip(made, node.outputs, strict=True))
    return made if has_types else None
