"""Bounded constant folding, for graphs from strangers.

PyTensor folds nodes of constants when it rewrites a graph, and even when it makes a node whose
static shape they determine. A file can make that run for ever, exhaust the memory or crash: by
loops, compiled code, sparse matrices with indices out of range. Inside of `bounded_folding`, only
Ops that are safe on any value are folded, on arrays of bounded size and with a bounded amount of
work in all, in Python. Other nodes stay in the graph.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from pytensor.compile.ops import DeepCopyOp, ViewOp
from pytensor.configdefaults import config
from pytensor.graph.basic import Apply, Constant
from pytensor.raise_op import CheckAndRaise
from pytensor.scalar.basic import Cast, ScalarInnerGraphOp, ScalarOp
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

MOST = 1 << 20
"""How many elements a node may read and make, and how many products it may add up."""
_MOST_IN_ALL = 1 << 24
"""The same for all nodes inside of one `bounded_folding`."""
_SLOW = 64
"""How many sums take as long as one special function, or one number computed by Python code."""

# PyTensor's Python code takes no more inputs and outputs; it would fall back to C.
_MOST_OPERANDS = 31
_SPECIAL_FUNCTIONS = "pytensor.scalar.math"
_NO_LARGER_THAN_INPUTS = (
    *(Argmax, ArgSortOp, CheckAndRaise, CumOp, DeepCopyOp, DimShuffle, ExtractDiag),
    *(IncSubtensor, Join, JoinDims, MakeVector, Reshape, ScalarFromTensor, Shape, Shape_i),
    *(SortOp, SpecifyShape, Split, SplitDims, Subtensor, TensorFromScalar, ViewOp),
)

_lock = threading.Lock()
_depth = 0
_left = 0


@contextmanager
def bounded_folding() -> Iterator[None]:
    """Have PyTensor evaluate only what is safe and small, in the whole process."""
    global _depth, _left
    with _lock:
        if _depth == 0:
            _install()
            _left = _MOST_IN_ALL
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
        global _left
        work = work_of(node)
        if work > min(MOST, _left):
            return False
        _left -= int(work)
        try:
            with config.change_flags(cxx=""):
                return original(fgraph, node, *arguments)
        except (_missing_compiler(), AssertionError):
            # It has no Python code, or none for so many operands; or a check fails, as it will
            # when the graph runs. PyTensor handles all errors of a rewriter but this one.
            return False

    # An attribute of the instance, which `del` takes away again.
    unconditional_constant_folding.transform = transform


def _missing_compiler() -> type[Exception]:
    """Return PyTensor's error that there is no compiler, whose module imports setuptools."""
    from pytensor.link.c.exceptions import MissingGXX

    return MissingGXX


def work_of(node: Apply) -> float:
    """How many numbers evaluating a node takes; infinitely many if it is not one of constants."""
    values: list[Any] = [v.data for v in node.inputs if isinstance(v, Constant)]
    return work_on(node, values) if len(values) == len(node.inputs) else math.inf


def work_on(node: Apply, values: list[Any]) -> float:
    """How many numbers evaluating a node on ``values`` takes; infinitely many if it is not safe."""
    if any(isinstance(value, list | tuple) for value in values):
        return math.inf
    try:
        # Axes of length 0 make arrays of no bytes, of which sums over another axis are not empty.
        sizes = [math.prod(max(length, 1) for length in np.shape(value)) for value in values]
        return max(float(sum(sizes)), _work(node, values, sizes))
    except (TypeError, ValueError, OverflowError):
        return math.inf


def _work(node: Apply, values: list[Any], sizes: list[int]) -> float:
    """How many numbers a node makes or adds up at most; infinitely many if it is not known."""
    op = node.op
    operands = len(node.inputs) + len(node.outputs)
    if isinstance(op, ScalarOp):
        return _work_of_one(op, operands)
    match op:
        case Elemwise():
            size = math.prod(np.broadcast_shapes(*map(np.shape, values)))
            # Not 0 times infinity.
            return max(size, 1) * _work_of_one(op.scalar_op, operands)
        case CAReduce():
            # It combines two numbers to one.
            return sizes[0] * _work_of_one(op.scalar_op, 3)
        case Nonzero():
            return sizes[0] * float(max(np.ndim(values[0]), 1))
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


def _work_of_one(op: ScalarOp, operands: int) -> float:
    """How many sums take as long as computing one number.

    Special functions of several arguments, such as hyp2f1, take milliseconds at some of them.
    """
    is_special = type(op).__module__ == _SPECIAL_FUNCTIONS
    if isinstance(op, ScalarInnerGraphOp) or operands > (2 if is_special else _MOST_OPERANDS):
        return math.inf
    is_python = getattr(op, "nfunc_spec", None) is None and not isinstance(op, Cast)
    return _SLOW if is_special or is_python else 1
