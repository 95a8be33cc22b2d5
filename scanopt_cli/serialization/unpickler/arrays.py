"""NumPy data from the records of a pickle, without NumPy's own reconstructors.

Those trust what they are told: forged dtypes and short lists of objects crash the process. Here
the bytes must be in the file, as many as dtype and shape need, before an array is made of them.
"""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
from pytensor.sparse.type import SparseTensorType

_DTYPE = re.compile(r"[<>|=]?(?:[?]|b1|[iu][1248]|f[248]|c8|c16)")
_MAX_NDIM = 64


def dtype_from(code: Any, state: Any) -> np.dtype[Any]:
    """Return the dtype that ``numpy.dtype(code)`` with pickled ``state`` means.

    Raises
    ------
    ValueError
        If it is not a plain dtype of booleans or numbers.
    """
    if not isinstance(code, str) or not _DTYPE.fullmatch(code):
        raise ValueError("a dtype that is not one of booleans or numbers")
    if state is None:
        return np.dtype(code)
    if (
        not isinstance(state, tuple)
        or len(state) < 5
        or any(part is not None for part in state[2:5])
    ):
        raise ValueError("a dtype with fields or subarrays")
    order = state[1]
    if not _is_one_of(order, "<>|="):
        raise ValueError("a dtype of no byte order")
    return np.dtype(code).newbyteorder(order) if order in "<>" else np.dtype(code)


def array_from(data: Any, dtype: Any, shape: Any, order: Any) -> np.ndarray[Any, Any]:
    """Return a fresh array of ``shape`` over a copy of the bytes ``data``.

    Raises
    ------
    ValueError
        If the number of bytes is not what dtype and shape need, or a part has the wrong type.
    """
    if not isinstance(dtype, np.dtype) or dtype.hasobject:
        raise ValueError("an array without a plain dtype")
    if not isinstance(data, bytes):
        raise ValueError("an array whose data are not bytes")
    shape = (shape,) if type(shape) is int else shape
    if not isinstance(shape, tuple) or len(shape) > _MAX_NDIM:
        raise ValueError("an array whose shape is not a tuple of lengths")
    if any(type(length) is not int or length < 0 for length in shape):
        raise ValueError("an array whose shape is not a tuple of lengths")
    if not _is_one_of(order, "CF"):
        raise ValueError("an array that is neither in C nor in Fortran order")
    needed = math.prod(shape) * dtype.itemsize
    if len(data) != needed:
        raise ValueError(f"an array that declares {needed:,} bytes and has {len(data):,}")
    if dtype.kind == "b" and data.strip(b"\0\1"):
        raise ValueError("an array of booleans that are neither 0 nor 1")
    return np.ndarray(shape, dtype, bytearray(data), order=order)


def _is_one_of(letter: Any, letters: str) -> bool:
    return type(letter) is str and len(letter) == 1 and letter in letters


def scalar_from(dtype: Any, data: Any) -> Any:
    """Return the NumPy scalar of ``dtype`` with the bytes ``data``; `ValueError` as above."""
    return dtype.type(array_from(data, dtype, (), "C")[()])


def sparse_from(kind: str, data: Any, indices: Any, indptr: Any, shape: Any) -> Any:
    """Return the SciPy sparse matrix of ``kind`` (``csc`` or ``csr``), its indices checked."""
    if not all(isinstance(part, np.ndarray) for part in (data, indices, indptr)):
        raise ValueError("a sparse matrix whose parts are not arrays")
    make = SparseTensorType.format_cls[kind]
    matrix = make((data, indices, indptr), shape=shape)
    matrix.check_format(full_check=True)
    return matrix
