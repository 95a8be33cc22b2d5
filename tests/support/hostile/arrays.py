"""Pickles of forged NumPy data; see `hostile`."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np

from support.hostile.running import Calls, called, hostile, named, text, touch, whole


def _array_state(shape: Any, dtype: Any, data: Any) -> bytes:
    class Forged:
        def __reduce__(self) -> Any:
            make = np.zeros(1).__reduce__()[0]
            return make, (np.ndarray, (0,), b"b"), (1, shape, dtype, False, data)

    return pickle.dumps(Forged())


@hostile
def object_array(marker: Path) -> bytes:
    return pickle.dumps(np.array([Calls(os.system, touch(marker))], dtype=object))


@hostile
def object_array_from_a_short_list(marker: Path) -> bytes:
    return _array_state((10**6,), np.dtype(object), [1])


@hostile
def forged_dtype(marker: Path) -> bytes:
    class Forged:
        def __reduce__(self) -> Any:
            return np.dtype, ("O8", False, True), (3, "|", None, None, None, -1, -1, 63)

    return pickle.dumps([Forged()])


@hostile
def structured_dtype(marker: Path) -> bytes:
    class Forged:
        def __reduce__(self) -> Any:
            fields = {"a": (np.dtype("f8"), 10**9)}
            return np.dtype, ("V8", False, True), (3, "|", None, ("a",), fields, 8, 1, 0)

    return pickle.dumps([Forged()])


@hostile
def fromfile(marker: Path) -> bytes:
    return whole(called("numpy", "fromfile", text("/etc/hostname")))


@hostile
def load_with_pickles(marker: Path) -> bytes:
    return whole(called("numpy", "load", text("x.npy")))


@hostile
def generator_with_a_foreign_bit_generator(marker: Path) -> bytes:
    body = called(
        "numpy.random._pickle",
        "__generator_ctor",
        called("numpy.random._pickle", "__bit_generator_ctor", named("os", "system")),
    )
    return whole(body)
