"""Which nodes may be computed while a graph is being read or rewritten.

PyTensor evaluates nodes of constants when it rewrites a graph, and even when it makes a node whose
static shape they give. A file can make that run for ever, take all memory, or crash: in loops, in
compiled code, in sparse matrices with wild indices. Inside of `bounded_folding` only Ops that are
safe on any value are evaluated, on arrays of a bounded size, in Python. The rest stays as it is;
whoever runs the graph computes it.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from pytensor.compile.ops import DeepCopyOp, ViewOp
from pytensor.graph.basic import Apply, Constant
from pytensor.raise_op import CheckAndRaise
from pytensor.scalar.basic import ScalarInnerGraphOp, ScalarOp
from pytensor.tensor.basic import (
    Alloc,
    ARange,
    ExtractDiag,
    Eye,
    Join,
    MakeVector,
    Nonzero,
    ScalarFromTensor,
    Split,
    TensorFromScalar,
)
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.extra_ops import CumOp
from pytensor.tensor.math import Argmax, Dot
from pytensor.tensor.reshape import JoinDims, SplitDims
from pytensor.tensor.rewriting.basic import unconditional_constant_folding
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.sort import ArgSortOp, SortOp
from pytensor.tensor.subtensor import AdvancedSubtensor, IncSubtensor, Subtensor

MOST = 1 << 22
"""How many elements a node may read and make, and how many products it may add up."""

# PyTensor's Python code takes no more; it would fall back to C.
_MOST_OPERANDS = 32
_NO_LARGER_THAN_INPUTS = (
    *(Argmax, ArgSortOp, CAReduce, CheckAndRaise, CumOp, DeepCopyOp, DimShuffle, ExtractDiag),
    *(IncSubtensor, Join, JoinDims, MakeVector, Nonzero, Reshape, ScalarFromTensor, Shape, Shape_i),
    *(SortOp, SpecifyShape, Split, SplitDims, Subtensor, TensorFromScalar, ViewOp),
)

_lock = threading.Lock()
_depth = 0


@contextmanager
def bounded_folding() -> Iterator[None]:
    """Have PyTensor evaluate only what is safe and small, in the whole process."""
    global _depth
    with _lock:
        if _depth == 0:
            _install()
        _depth += 1
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            if _depth == 0:
                del unconditional_constant_folding.transform


def _install() -> None:
    original = unconditional_constant_folding.transform

    def transform(fgraph: Any, node: Apply, *arguments: Any) -> Any:
        return original(fgraph, node, *arguments) if is_safe_to_fold(node) else False

    # An attribute of the instance, which `del` takes away again.
    unconditional_constant_folding.transform = transform


def is_safe_to_fold(node: Apply) -> bool:
    """Whether evaluating a node of constants is short and harmless, whatever the constants are."""
    values: list[Any] = [v.data for v in node.inputs if isinstance(v, Constant)]
    if len(values) < len(node.inputs):
        return False
    try:
        # Axes of length 0 make arrays of no bytes, of which sums over another axis are not empty.
        sizes = [math.prod(max(length, 1) for length in np.shape(value)) for value in values]
        return sum(sizes) <= MOST and _work(node, values, sizes) <= MOST
    except (TypeError, ValueError, OverflowError):
        return False


def _work(node: Apply, values: list[Any], sizes: list[int]) -> float:
    """How many numbers a node makes or adds up at most; infinitely many if it is not known."""
    op = node.op
    if isinstance(op, ScalarOp):
        return math.inf if isinstance(op, ScalarInnerGraphOp) else 1
    match op:
        case Elemwise():
            if isinstance(op.scalar_op, ScalarInnerGraphOp) or len(values) > _MOST_OPERANDS:
                return math.inf
            return math.prod(np.broadcast_shapes(*map(np.shape, values)))
        case Alloc():
            return math.prod(max(int(length), 1) for length in values[1:])
        case ARange():
            start, stop, step = map(float, values)
            return abs(stop - start) / abs(step) if step else math.inf
        case Eye():
            return math.prod(max(int(length), 1) for length in values[:2])
        case Dot():
            return sizes[0] * float(math.prod(np.shape(values[1])[1:]))
        case AdvancedSubtensor():
            return math.prod(sizes)
    return sum(sizes) if isinstance(op, _NO_LARGER_THAN_INPUTS) else math.inf
