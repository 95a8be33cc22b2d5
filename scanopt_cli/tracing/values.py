"""Values of a step: copies that later steps leave alone, as arrays, and in a few words."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from copy import deepcopy
from hashlib import blake2b
from io import BytesIO
from typing import Any

import numpy as np

from scanopt_cli.serialization.unpickler.generators import plain_state

_FEW = 4
_DIGITS = 6
_DIGITS_OF_MANY = 4


def snapshot(value: Any) -> Any:
    """Return a copy of a value, which nothing that runs later changes."""
    return value.copy() if isinstance(value, np.ndarray) else deepcopy(value)


def as_array(value: Any) -> np.ndarray:
    """Return a value as an array of numbers, or of one text if it is none: a generator, say."""
    if isinstance(value, np.ndarray | np.generic | bool | int | float | complex):
        return np.asarray(value)
    if isinstance(value, np.random.Generator):
        return np.asarray(f"{type(value.bit_generator).__name__} {_state_text(value)}")
    return np.asarray(str(value)[:200])


def _state_text(generator: np.random.Generator) -> str:
    """Return a few letters that tell the states of generators from each other."""
    state = plain_state(generator.bit_generator.state)
    return blake2b(repr(state).encode(), digest_size=4).hexdigest()


def npz(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Return arrays as a file that `numpy.load` reads, under any names."""
    file = BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, array, allow_pickle=False)
    return file.getvalue()


def is_numeric(array: np.ndarray) -> bool:
    """Whether an array holds numbers or booleans, not text."""
    return array.dtype.kind in "biufc"


def is_finite(array: np.ndarray) -> bool:
    """Whether no entry of an array is NaN or infinite."""
    return array.dtype.kind not in "fc" or bool(np.isfinite(array).all())


def value_text(array: np.ndarray) -> str:
    """Return a value in a few words: a number, few numbers, or the range of many."""
    if array.ndim == 0:
        return number_text(array[()])
    if array.size == 0:
        return f"empty {shape_text(array.shape)}"
    if not is_numeric(array):
        return f"{array.dtype} {shape_text(array.shape)}"
    if array.ndim == 1 and array.size <= _FEW:
        return f"[{', '.join(map(_short, array))}]"
    return f"{shape_text(array.shape)} {range_text(array)}"


def range_text(array: np.ndarray) -> str:
    """Return the range of the finite numbers of an array, and how many others it holds."""
    if not is_numeric(array) or not array.size:
        return ""
    if array.dtype.kind == "c":
        array = np.abs(array)
    finite = array[np.isfinite(array)] if array.dtype.kind == "f" else array
    parts = []
    if finite.size:
        low, high = map(_short, (finite.min(), finite.max()))
        parts.append(low if low == high else f"{low}..{high}")
    if array.dtype.kind == "f":
        n_nan, n_inf = int(np.isnan(array).sum()), int(np.isinf(array).sum())
        parts += [f"{n_nan} NaN"] if n_nan else []
        parts += [f"{n_inf} inf"] if n_inf else []
    return ", ".join(parts)


def number_text(number: Any, digits: int = _DIGITS) -> str:
    """Return a number with some digits, or what else an entry is."""
    if isinstance(number, np.floating | float):
        return "NaN" if np.isnan(number) else f"{number:.{digits}g}"
    if isinstance(number, np.complexfloating | complex):
        return f"{complex(number):.{digits}g}"
    return str(number)


def _short(number: Any) -> str:
    return number_text(number, _DIGITS_OF_MANY)


def shape_text(shape: tuple[int, ...]) -> str:
    """Return a shape as ``(3, 4)``, of one axis as ``(3)``."""
    return f"({', '.join(map(str, shape))})"
