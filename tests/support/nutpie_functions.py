"""The C functions that nutpie compiles of a model, called as its sampler calls them."""

from __future__ import annotations

from ctypes import CFUNCTYPE, c_int64, c_uint64, c_void_p
from typing import Any

import numpy as np


def logp_of(compiled: Any, point: np.ndarray, *, dim: int | None = None) -> tuple[int, Any, Any]:
    """Return the status, the log-density and the gradient at a point."""
    function = CFUNCTYPE(c_int64, c_uint64, *[c_void_p] * 4)(compiled.compiled_logp_func.address)
    gradient, value = np.zeros(compiled.n_dim), np.zeros(1)
    arrays = point, gradient, value, compiled.user_data
    status = function(dim or compiled.n_dim, *(array.ctypes.data for array in arrays))
    return status, value[0], gradient


def expanded(compiled: Any, point: np.ndarray, *, dim: int | None = None) -> tuple[int, Any]:
    """Return the status, and the values that are kept of a draw."""
    address = compiled.compiled_expand_func.address
    function = CFUNCTYPE(c_int64, c_uint64, c_uint64, *[c_void_p] * 3)(address)
    values = np.zeros(compiled.n_expanded)
    arrays = point, values, compiled.user_data
    lengths = dim or compiled.n_dim, compiled.n_expanded
    return function(*lengths, *(array.ctypes.data for array in arrays)), values
