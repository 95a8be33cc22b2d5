"""The values that attributes of Ops and Types may hold, by name of attribute.

Constructors copy most of their arguments, and backends paste attributes into the C or Python code
that they generate. So text is admitted only in attributes that hold text in some Op, and only in
the form that it has there. C++ can be written in letters, digits and a few signs, so an attribute
that is a number by right may hold no text at all, however harmless it looks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import NoneType
from typing import Any

import numpy as np
from pytensor.assumptions.core import AssumptionKey, FactState
from pytensor.conditional.op import IfElse
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FrozenFunctionGraph
from pytensor.graph.op import HasMultipleInnerGraph, Op
from pytensor.graph.type import Type
from pytensor.scalar.basic import ScalarOp, specific_out
from pytensor.scan.op import ScanInfo
from pytensor.tensor.type import TensorType

from scanopt_cli.ir.inner_graphs import HELD_OPS
from scanopt_cli.serialization.unpickler.allowlist import OBJECTS
from scanopt_cli.serialization.unpickler.constructors import StateError

_MAX_PARTS = 100_000
_MAX_TEXT = 10_000
_MAX_NAME = 1_000
_MAX_INTEGER = 2**63 - 1
_MAX_AXIS = 64
_MAX_COUNT = 10_000
_MAX_LENGTH = 2**48

# No backslash, and no "??", of which old C makes one.
_FREE = re.compile(r"(?:(?!\?\?)[^\\\x00-\x08\x0b-\x1f\x7f\ud800-\udfff])*")
# Backends paste it into comments of Python code alone, each line into one, in which a null
# character is an error; it is escaped where it is shown.
_ANY = re.compile(r"[^\x00\ud800-\udfff]*")
# Shown in reports and by no backend, in LaTeX too.
_DISPLAYED = re.compile(r"[^\x00-\x1f\x7f]*")
_SIGNATURE = re.compile(r"[\w(),\[\] <>-]*")
# PyTensor names axis 0 of operand 70 i700 or o700; Ops read other numbers as numbers of axes.
_AXES_IN_SIGNATURE = re.compile(r"(?<![io\d])\d+")
# Names of dimensions, which only XTensors have; they are gone before code is generated.
_DIMENSION = re.compile(r"[\w .,:<>=+*/|-]*")
_CHOICE = re.compile(r"[\w-]*")
_DTYPE = re.compile("|".join(map(re.escape, (*TensorType.dtype_specs_map, "floatX"))))


def _by_name(pattern: re.Pattern[str], names: str) -> dict[str, re.Pattern[str]]:
    return dict.fromkeys(names.split(), pattern)


_TEXTS: dict[str, re.Pattern[str]] = {
    **_by_name(_FREE, "name msg message former"),
    **_by_name(_ANY, "why_null"),
    **_by_name(_DISPLAYED, "_print_name"),
    **_by_name(_SIGNATURE, "signature gufunc_signature extended_signature"),
    **_by_name(_DIMENSION, "dim dims new_dim_name new_dims old_dim_name stacked_dims"),
    **_by_name(_DIMENSION, "unstacked_dims extra_dims core_dims exclude"),
    **_by_name(_DTYPE, "dtype acc_dtype out_dtype out_type reduced_outputs"),
    **_by_name(re.compile(r"[\w ,.>-]*"), "subscripts"),
    **_by_name(re.compile(r"[\w.]*"), "nfunc_spec gufunc_spec"),
    **_by_name(re.compile(r"x"), "new_order"),
    **_by_name(re.compile(r"set|inc"), "indexed_outputs"),
    **_by_name(_CHOICE, "inputs_sig outputs_sig output_sig"),
    **_by_name(_CHOICE, "UPLO assume_a border_mode driver format kind method mode norm order"),
    **_by_name(_CHOICE, "output pad_mode reflect_type side sort trans"),
    **_by_name(_FREE, "marginalized_name"),
    **_by_name(_CHOICE, "attrs bound_kwargs kwargs _init_kwargs optimizer_kwargs"),
}
"""The text that an attribute may hold, itself or in a container."""

_COUNTS = frozenset(
    {
        *("len_splits", "input_ndim", "ndim", "ndim_supp", "ndims_params", "n_outs", "n_inputs"),
        *("start_axis", "n_axes", "nin", "nout"),
    }
)
"""Attributes that bound a loop in a constructor: at most `_MAX_COUNT`."""

_HOLDERS: tuple[tuple[type[Any], frozenset[str]], ...] = (
    (Op, frozenset(HELD_OPS)),
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


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_text_or_none(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _is_pattern(value: Any) -> bool:
    """Whether ``value`` says which input each output depends on, or nothing."""
    return value is None or (
        isinstance(value, list | tuple)
        and all(isinstance(row, list | tuple) for row in value)
        and all(isinstance(flag, bool) for row in value for flag in row)
    )


def _is_memory_map(value: Any) -> bool:
    """Whether ``value`` says which inputs each output overwrites or looks into, or nothing."""
    return value is None or (
        isinstance(value, Mapping)
        and all(map(_is_whole, value))
        and all(isinstance(places, list | tuple) for places in value.values())
        and all(_is_whole(place) for places in value.values() for place in places)
    )


def _is_shape(value: Any) -> bool:
    """Whether ``value`` is a static shape of arrays that could exist."""
    return isinstance(value, list | tuple) and all(
        length is None or (_is_whole(length) and 0 <= length < _MAX_LENGTH) for length in value
    )


_KINDS: dict[str, Callable[[Any], bool]] = {
    "shape": _is_shape,
    **dict.fromkeys(("offset", "axis1", "axis2", "i", "idx", "truncate_gradient"), _is_whole),
    **dict.fromkeys(("ndim", "input_ndim", "nin", "nout", "n_outs", "len_splits"), _is_whole),
    **dict.fromkeys(("msg", "message"), _is_text),
    "name": _is_text_or_none,
    "_connection_pattern": _is_pattern,
    **dict.fromkeys(("destroy_map", "view_map"), _is_memory_map),
}
"""What an attribute as a whole must be."""


def check_attributes(cls: type[Any], state: Mapping[str, Any]) -> None:
    """Refuse what could be code once it is pasted into code, or exhaust a constructor.

    Raises
    ------
    StateError
        If an attribute of ``state`` holds what an instance of ``cls`` has no use for.
    """
    left = _MAX_PARTS
    is_foreign = cls.__module__.partition(".")[0] not in ("pytensor", "pymc", "pymc_extras")
    for name, value in state.items():
        if name in _KINDS and not _KINDS[name](value):
            raise StateError(f"attribute {name!r} is a {type(value).__name__}, or holds some")
        # Attributes of packages that the user admits have any names.
        text = _TEXTS.get(name, _CHOICE if is_foreign else None)
        if name == "name" and _is_only_shown(cls):
            text = _ANY
        pending = [value]
        while pending:
            part = pending.pop()
            left -= 1
            if left < 0:
                raise StateError("it has too many parts")
            if isinstance(part, str):
                _check_text(name, part, text)
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


def _is_only_shown(cls: type[Any]) -> bool:
    """Whether the name of a ``cls`` is for people alone: that of a loop or of another inner graph.

    Backends name functions after scalar Ops, call draws by the name of their distribution, and may
    do so with what nobody has read.
    """
    return issubclass(cls, HasMultipleInnerGraph | IfElse) and not issubclass(cls, ScalarOp)


def _check_text(name: str, text: str, allowed: re.Pattern[str] | None) -> None:
    longest = _MAX_NAME if allowed in (_ANY, _FREE, _DISPLAYED) else _MAX_TEXT
    if allowed is not None and len(text) > longest:
        raise StateError(f"attribute {name!r} has more than {longest:,} letters")
    if allowed is _FREE and not allowed.fullmatch(text):
        raise StateError(
            f"attribute {name!r} has a backslash, '??' or a control character, which would be "
            "read as C where it is pasted into code"
        )
    if allowed is _ANY and not allowed.fullmatch(text):
        raise StateError(f"attribute {name!r} has a null character, or half of a surrogate pair")
    if allowed is None or not allowed.fullmatch(text):
        raise StateError(f"attribute {name!r} holds text that no op needs")
    if allowed is _SIGNATURE and any(
        int(digits) > _MAX_AXIS for digits in _AXES_IN_SIGNATURE.findall(text)
    ):
        raise StateError(f"attribute {name!r} has more axes than an array")


def _is_admitted(name: str, part: Any) -> bool:
    """Whether an attribute may hold something that is neither text, whole number nor container.

    What is not known here is refused: backends paste the text of what they are given into code.
    """
    if isinstance(part, _INERT) or any(part is known for known in OBJECTS.values()):
        return True
    if isinstance(part, type) and issubclass(part, Exception):
        return name == "exc_type"
    return any(isinstance(part, kind) and name in holders for kind, holders in _HOLDERS)
