"""Arrays and NumPy's numbers in the JSON table: short ones as they read, all to the bit.

A short array is ``[dtype, shape, numbers]``, of booleans and finite real numbers in the order of
C, or ``[dtype, shape, text]``: its bytes in hexadecimal, least significant first, for complex
numbers, NaN and infinity. Longer ones have a file of their own in the archive.
"""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from scanopt_cli.serialization.archives import KINDS
from scanopt_cli.serialization.unpickler.arrays import array_from

SHORT = 16
"""How many numbers an array may have that stands in the table itself."""

_MOST_AXES = 64

_DTYPE = re.compile(r"bool|u?int(?:8|16|32|64)|float(?:16|32|64)|complex(?:64|128)")
_KINDS: dict[str, tuple[type[Any], ...]] = {"b": (bool,), "i": (int,), "u": (int,), "f": (float,)}


def dtype_text(dtype: np.dtype[Any]) -> str:
    """Return the name of a dtype in files; `TypeError` if it is not one of booleans or numbers."""
    name = dtype.newbyteorder("=").name
    if dtype.kind not in KINDS or not _DTYPE.fullmatch(name):
        raise TypeError(f"numbers of dtype {dtype}")
    return name


def dtype_of(text: Any) -> np.dtype[Any]:
    """Return the dtype that a file names; `ValueError` if it is none."""
    if type(text) is not str or not _DTYPE.fullmatch(text):
        raise ValueError("what is no dtype of booleans or numbers")
    return np.dtype(text)


def short_form(array: np.ndarray[Any, Any]) -> list[Any]:
    """Return the form of an array that stands in the table."""
    name, shape = dtype_text(array.dtype), list(array.shape)
    if array.dtype.kind in _KINDS and bool(np.isfinite(array).all()):
        return [name, shape, array.ravel().tolist()]
    little = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"))
    return [name, shape, little.tobytes().hex()]


def short_array(form: Any) -> np.ndarray[Any, Any]:
    """Return the array of a form that `short_form` gave.

    Raises
    ------
    ValueError
        If it is none, or its numbers do not fit its dtype, or are not as many as its shape says.
    """
    match form:
        case [name, [*shape], content]:
            dtype = dtype_of(name)
        case _:
            raise ValueError("an array that is not of the form [dtype, shape, numbers]")
    if type(content) is str:
        little = array_from(bytes.fromhex(content), dtype.newbyteorder("<"), tuple(shape), "C")
        return little.astype(dtype)
    if type(content) is not list or any(
        type(number) not in _KINDS.get(dtype.kind, ()) for number in content
    ):
        raise ValueError(f"an array of {name} that does not list such numbers")
    if len(shape) > _MOST_AXES or any(type(n) is not int or n < 0 for n in shape):
        raise ValueError("an array whose shape is not a list of lengths")
    if math.prod(shape) != len(content):
        raise ValueError(f"an array that declares {math.prod(shape):,} numbers and has others")
    try:
        with np.errstate(over="ignore"):
            made = np.array(content, dtype=dtype).reshape(shape)
    except OverflowError:
        raise ValueError(f"an array with a number that is no {name}") from None
    if not np.isfinite(made).all():
        raise ValueError(f"an array with a number that is no {name}")
    return made
