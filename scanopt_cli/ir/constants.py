"""Signed zeros in the bodies of Ops, which PyTensor does not keep apart.

A frozen graph keeps one node for equal constants, and 0.0 equals -0.0; which of the two a body gets
depends on the constants that the process froze before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import AbstractFunctionGraph
from pytensor.graph.traversal import toposort

from scanopt_cli.errors import PassError


def has_negative_zero(variable: Variable) -> bool:
    """Whether a constant holds -0.0, as a real or imaginary part."""
    return isinstance(variable, Constant) and bool(_negative_zeros(variable))


def is_sparse(value: object) -> bool:
    """Whether ``value`` is a sparse matrix."""
    return hasattr(value, "indptr")


def are_same_data(one: Variable, other: Variable) -> bool:
    """Whether two constants that PyTensor takes for equal are: it takes 0.0 and -0.0 for equal.

    It also takes sparse constants for equal whose entries are close.
    """
    if not isinstance(one, Constant) or not isinstance(other, Constant):
        return True
    return _left_out(one) == _left_out(other)


def check_constants(outputs: Iterable[Variable], frozen: AbstractFunctionGraph, name: str) -> None:
    """Check that freezing a body kept the signs of its zeros.

    Raises
    ------
    PassError
        If freezing has turned a 0.0 into a -0.0, or the other way round.
    """
    outputs = list(outputs)
    meant = _zeros(toposort(outputs), outputs)
    if meant != _zeros(frozen.toposort(), frozen.outputs):
        raise PassError(
            f"PyTensor has mixed up 0.0 and -0.0 in the body of {name}, which it keeps as one",
            hint="run scanopt on this graph alone, in a process of its own",
        )


def _zeros(nodes: Iterable[Apply], outputs: Iterable[Variable]) -> Counter[bytes]:
    """Count the uses of constants by what PyTensor's equality leaves out of them, if anything."""
    read = [variable for node in nodes for variable in node.inputs]
    counts = (_left_out(v) for v in (*read, *outputs) if isinstance(v, Constant))
    return Counter(count for count in counts if count)


def _left_out(constant: Constant) -> bytes:
    """Return what PyTensor leaves out when it compares constants: signs of zeros, sparse data."""
    if is_sparse(constant.data):
        data: Any = constant.data
        return b"".join(
            np.asarray(part).tobytes() for part in (data.data, data.indices, data.indptr)
        )
    return _negative_zeros(constant)


def _negative_zeros(constant: Constant) -> bytes:
    """Return where a constant holds -0.0, empty if nowhere."""
    # Scalars of other widths than a Python float are no floats.
    if not isinstance(constant.data, float | complex | np.ndarray | np.generic):
        return b""
    data = np.asarray(constant.data)
    if data.dtype.kind not in "fc":
        return b""
    parts = (data.real, data.imag) if data.dtype.kind == "c" else (data,)
    found = np.stack([(part == 0) & np.signbit(part) for part in parts])
    return np.packbits(found).tobytes() if found.any() else b""
