"""Ops and types made anew from the state that a file gives them, and refused if it differs.

Honest classes can carry hostile state: names that are imported and called while constants are
folded, strings that are pasted into generated code, attributes that hide methods. So no state is
ever set on an op. Each op is made by its own constructor from those of its properties that are
plain values, and the op that comes out must have the state that the file gave, attribute by
attribute. What a constructor would copy without looking, and what is executed later, is never
handed to it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from types import NoneType
from typing import Any

import numpy as np
from pytensor.assumptions.core import AssumptionKey, FactState
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FrozenFunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.type import Type
from pytensor.misc.frozendict import frozendict
from pytensor.scalar.basic import specific_out
from pytensor.scan.op import ScanInfo
from pytensor.tensor.type import TensorType

from scanopt_cli.errors import brief
from scanopt_cli.serialization.unpickler.allowlist import OBJECTS
from scanopt_cli.serialization.unpickler.constructors import StateError, make

_FREE_TEXT = frozenset({"name", "msg", "message", "why_null"})
# No backslash, and no "??", of which old C makes one.
_FREE = re.compile(r"(?:(?!\?\?)[^\\\x00-\x08\x0b-\x1f\x7f\ud800-\udfff])*")
# Shown in reports and by no backend, in LaTeX too.
_DISPLAYED = re.compile(r"[^\x00-\x1f\x7f]*")
_SIGNATURE = re.compile(r"[\w(),\[\] <>-]*")
# PyTensor names axis 0 of operand 70 i700 or o700; Ops read other numbers as numbers of axes.
_AXES_IN_SIGNATURE = re.compile(r"(?<![io\d])\d+")
_WORD = re.compile(r"[\w .,:<>=+*/|-]*")
_TENSOR_DTYPES = frozenset({*TensorType.dtype_specs_map, "floatX"})
_DTYPES = frozenset({"dtype", "acc_dtype", "out_dtype"})
_COUNTS = frozenset(
    {
        *("len_splits", "input_ndim", "ndim", "ndim_supp", "ndims_params", "n_outs", "n_inputs"),
        *("start_axis", "n_axes", "nin", "nout"),
    }
)
"""Attributes up to which constructors count."""
_MAX_COUNT = 10_000
_MAX_INTEGER = 2**63 - 1
_MAX_AXIS = 64
_HOLDERS: tuple[tuple[type[Any], frozenset[str]], ...] = (
    (
        Op,
        frozenset(
            {
                *("scalar_op", "core_op", "binary_op", "base_rv_op", "true_branch", "false_branch"),
                *("pullback_overrides", "pushforward_overrides", "reduced_outputs"),
                *("indexed_inputs", "indexed_outputs"),
            }
        ),
    ),
    (
        Type,
        frozenset(
            {
                *("input_types", "output_types", "inputs_type", "outputs_type"),
                *("output_types_preference", "o_type", "ttype"),
            }
        ),
    ),
    (Variable, frozenset({"inputs", "outputs"})),
    (FrozenFunctionGraph, frozenset({"fgraph"})),
    (ScanInfo, frozenset({"info"})),
)
"""Attributes that hold Ops, Types, Variables and graphs. Elsewhere these have no business: an Op in
place of a number is pasted into generated code by its name."""
_INERT = (
    *(NoneType, float, complex, np.dtype, np.inexact, np.bool, np.ndarray),
    *(AssumptionKey, FactState, specific_out),
)
"""Kinds of values that any attribute may hold: their texts are numbers, or names of PyTensor's."""
_MAX_PARTS = 100_000
_MAX_TEXT = 10_000


def rebuild(cls: type[Any], state: Mapping[str, Any]) -> Any:
    """Return a new instance of ``cls``, an Op or Type class, that has the given state.

    ``state`` maps attribute names to values that were rebuilt themselves; caches are left out.

    Raises
    ------
    StateError
        If no constructor call gives an instance with that state.
    """
    _check_plain(state)
    try:
        made = make(cls, state)
        actual = merged_state(made.__getstate__())
        for name, value in state.items():
            expected = actual[name] if name in actual else _class_attribute(cls, name)
            if not _same(value, expected):
                raise StateError(f"attribute {name!r} is not what its constructor makes of it")
        hash(made)
    except (StateError, RecursionError):
        raise
    except Exception as error:
        raise StateError(f"its constructor fails: {brief(error)}") from None
    return made


def _class_attribute(cls: type[Any], name: str) -> Any:
    """Return a plain attribute of ``cls``; never by getattr, for some properties compile."""
    missing = object()
    found = inspect.getattr_static(cls, name, missing)
    if found is missing:
        raise StateError(f"attribute {name!r} is not one that its constructor sets")
    if callable(found) or hasattr(found, "__get__"):
        raise StateError(f"attribute {name!r} hides a method")
    return found


def merged_state(state: Any) -> dict[str, Any]:
    """Return the attributes in what ``__getstate__`` gives: of the instance and of its slots."""
    parts = state if isinstance(state, tuple) and len(state) == 2 else (state,)
    return {name: value for part in parts for name, value in (part or {}).items()}


def _check_plain(state: Mapping[str, Any]) -> None:
    """Refuse what could end a string or a statement in generated code, or exhaust a constructor."""
    left = _MAX_PARTS
    for name, value in state.items():
        pending = [value]
        while pending:
            part = pending.pop()
            left -= 1
            if left < 0:
                raise StateError("it has too many parts")
            if isinstance(part, str):
                allowed = _FREE if name in _FREE_TEXT else _WORD
                if name.endswith("signature"):
                    allowed = _SIGNATURE
                elif name == "_print_name":
                    allowed = _DISPLAYED
                if len(part) > _MAX_TEXT or not allowed.fullmatch(part):
                    raise StateError(f"attribute {name!r} holds text that no op needs")
                if allowed is _SIGNATURE and any(
                    int(digits) > _MAX_AXIS for digits in _AXES_IN_SIGNATURE.findall(part)
                ):
                    raise StateError(f"attribute {name!r} has more axes than an array")
                if name in _DTYPES and part not in _TENSOR_DTYPES:
                    raise StateError(f"attribute {name!r} is not the dtype of a tensor")
            elif isinstance(part, int | np.integer):
                if abs(int(part)) > _MAX_INTEGER:
                    raise StateError(f"attribute {name!r} holds a number of more than 64 bits")
                if name in _COUNTS and not 0 <= part <= _MAX_COUNT:
                    raise StateError(f"attribute {name!r} is out of all proportion")
            elif isinstance(part, bytes):
                raise StateError(f"attribute {name!r} holds bytes")
            elif isinstance(part, Mapping):
                pending += [*part.keys(), *part.values()]
            elif isinstance(part, list | tuple | set | frozenset):
                pending += part
            elif isinstance(part, slice):
                pending += (part.start, part.stop, part.step)
            elif not _is_admitted(name, part):
                raise StateError(f"attribute {name!r} holds a {type(part).__name__}")


def _is_admitted(name: str, part: Any) -> bool:
    """Whether an attribute may hold something that is neither text, whole number nor container.

    What is not known here is refused: backends paste the text of what they are given into code.
    """
    if isinstance(part, _INERT) or any(part is known for known in OBJECTS.values()):
        return True
    if isinstance(part, type) and issubclass(part, Exception):
        return name == "exc_type"
    return any(isinstance(part, kind) and name in holders for kind, holders in _HOLDERS)


def _same(left: Any, right: Any) -> bool:
    """Whether two values are the same, types included; ops and types by their own equality."""
    if isinstance(left, int | np.integer) and not isinstance(left, bool):
        return isinstance(right, int | np.integer) and not isinstance(right, bool) and left == right
    if isinstance(left, FrozenFunctionGraph | Op | Type) or type(left) is not type(right):
        return bool(type(left) is type(right) and left == right)
    if isinstance(left, dict | frozendict):
        return left.keys() == right.keys() and all(_same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(_same, left, right))
    if isinstance(left, np.ndarray):
        return left.dtype == right.dtype and bool(np.array_equal(left, right))
    return left is right or bool(left == right) or (left != left and right != right)
