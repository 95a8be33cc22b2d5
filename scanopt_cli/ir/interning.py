"""What PyTensor takes for equal and is not: signs of zeros, Ops that differ in an attribute.

A frozen graph keeps one node for equal Ops with equal inputs, and so does PyTensor's merging. Which
of two such nodes a body gets depends on those that the process froze before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply, Constant, FrozenApply, NominalVariable, Variable
from pytensor.graph.fg import AbstractFunctionGraph
from pytensor.graph.op import Op
from pytensor.scalar.basic import Composite
from pytensor.scalar.loop import ScalarLoop
from pytensor.scan.op import Scan

from scanopt_cli.errors import PassError

# Of GradScale, GradClip, DenseFromSparse, SpSum and TrueDot.
_FOR_GRADIENTS = (
    *("multiplier", "clip_lower_bound", "clip_upper_bound"),
    *("sparse_grad", "structured", "grad_preserves_dense"),
)


@contextmanager
def untouched_inner_inputs() -> Iterator[None]:
    """Leave the inputs of the inner graphs of this process as they are.

    There is one for each position and type. Whoever asks for it gives it a type that is equal, but
    another object, and a pickle tells the two apart.
    """
    types = {variable: variable.type for variable in NominalVariable.__instances__.values()}
    try:
        yield
    finally:
        for variable, kind in types.items():
            variable.type = kind


def has_negative_zero(variable: Variable) -> bool:
    """Whether a constant holds -0.0, as a real or imaginary part."""
    if not isinstance(variable, Constant):
        return False
    data = variable.data
    is_number = isinstance(data, float | complex | np.ndarray | np.generic)
    return is_number and bool(_negative_zeros(np.asarray(data)))


def is_sparse(value: object) -> bool:
    """Whether ``value`` is a sparse matrix."""
    return hasattr(value, "indptr")


def is_kept(op: Op, inputs: Sequence[Variable], made: Apply | FrozenApply) -> bool:
    """Whether ``made``, which PyTensor takes for ``op`` applied to ``inputs``, is that."""
    return _is_same_op(op, made.op) and _are_same(inputs, made.inputs)


def _is_same_op(one: Op, other: Op) -> bool:
    if one is other or beyond_equality(one) == beyond_equality(other):
        return True
    # An OpFromGraph has no connection pattern until it is asked for it, if it was not given one.
    for part in (*_parts(one), *_parts(other)):
        if isinstance(part, OpFromGraph):
            part.connection_pattern(None)
    return beyond_equality(one) == beyond_equality(other)


def beyond_equality(op: Op) -> tuple[str, ...]:
    """Return what PyTensor leaves out when it compares Ops, of ``op`` and the Ops it applies."""
    return tuple(_attributes(op))


def gradient_attributes(op: Op) -> list[tuple[str, Any]]:
    """Return what decides how ``op`` is differentiated, but not whether PyTensor calls it equal."""
    own = vars(op)
    return [(name, own[name]) for name in _FOR_GRADIENTS if name in own]


def _attributes(op: Op) -> Iterator[str]:
    for part in _parts(op):
        if found := gradient_attributes(part):
            yield repr(found)
        if isinstance(part, ScalarLoop | Composite | Scan):
            names = ("is_while", "identity", "destroy_map", "view_map")
            yield repr([getattr(part, name, None) for name in names])
        if isinstance(part, OpFromGraph):
            yield repr((part._connection_pattern, part.input_types, part.output_types))


def _parts(op: Op | None) -> Iterator[Op]:
    """Yield ``op`` and the Ops that it applies to each entry."""
    while op is not None:
        yield op
        op = getattr(op, "scalar_op", None) or getattr(op, "core_op", None)


def check_kept(outputs: Iterable[Variable], frozen: AbstractFunctionGraph, name: str) -> None:
    """Check that freezing a body, which ends in ``outputs``, kept its constants and Ops.

    Raises
    ------
    PassError
        If it has exchanged what PyTensor takes for equal: a 0.0 for a -0.0, say.
    """
    seen: set[Apply] = set()
    pairs = list(zip(outputs, frozen.outputs, strict=True))
    while pairs:
        meant, made = pairs.pop()
        node = meant.owner
        if node is None:
            kept = _are_same((meant,), (made,))
        elif node in seen:
            continue
        else:
            seen.add(node)
            kept = is_kept(node.op, node.inputs, made.owner)
            pairs += zip(node.inputs, made.owner.inputs, strict=True)
        if not kept:
            raise PassError(
                f"in the body of {name}, PyTensor confuses two constants (0.0 and -0.0, say) or "
                "two Ops that differ in an attribute",
                hint="run scanopt on this graph alone, in a process of its own",
            )


def _are_same(some: Iterable[Variable], others: Iterable[Variable]) -> bool:
    return all(
        one is two or _left_out(one.data) == _left_out(two.data)
        for one, two in zip(some, others, strict=True)
        if isinstance(one, Constant) and isinstance(two, Constant)
    )


def _left_out(data: Any) -> bytes:
    """Return what PyTensor leaves out when it compares constants of ``data``, empty if nothing.

    That is the signs of zeros, the other part of a complex number that is NaN in one, and the
    entries of sparse matrices, which need only be close.
    """
    if is_sparse(data):
        return b"".join(
            np.asarray(part).tobytes() for part in (data.data, data.indices, data.indptr)
        )
    if isinstance(data, list | tuple):
        parts = [_left_out(part) for part in data]
        return repr(parts).encode() if any(parts) else b""
    # Scalars of other widths than a Python float are no floats.
    if not isinstance(data, float | complex | np.ndarray | np.generic):
        return b""
    array = np.asarray(data)
    if array.dtype.kind == "c" and np.isnan(array).any():
        halves = (array.real, array.imag)
        return b"".join(np.where(np.isnan(half), np.nan, half).tobytes() for half in halves)
    return _negative_zeros(array)


def _negative_zeros(array: np.ndarray) -> bytes:
    """Return where an array holds -0.0, empty if nowhere."""
    if array.dtype.kind not in "fc":
        return b""
    parts = (array.real, array.imag) if array.dtype.kind == "c" else (array,)
    found = np.stack([(part == 0) & np.signbit(part) for part in parts])
    return np.packbits(found).tobytes() if found.any() else b""
