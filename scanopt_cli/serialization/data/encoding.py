"""Values in the JSON table: plain ones as they are, all others as an object with one key.

Nothing, truth values, texts, whole numbers and finite floats are written as JSON has them, and a
tuple is a list. `TAGS` of `decoding` says what the other forms are.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
from pytensor.assumptions.core import AssumptionKey, FactState
from pytensor.graph.fg import FrozenFunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.type import Type
from pytensor.misc.frozendict import frozendict
from pytensor.scalar.basic import specific_out
from pytensor.scan.op import ScanInfo

from scanopt_cli.ir.interning import is_sparse
from scanopt_cli.serialization.data.numbers import SHORT, dtype_text, short_form
from scanopt_cli.serialization.data.objects import object_name
from scanopt_cli.serialization.unpickler.generators import plain_state


class Encoder:
    """Writes values, for one file.

    Parameters
    ----------
    refer
        Returns the form of a reference to an Op, a Type or an inner graph, which it writes first.
    keep
        Keeps an array in a file of its own, and returns its number.
    """

    def __init__(
        self, refer: Callable[[Any], Any], keep: Callable[[np.ndarray[Any, Any]], int]
    ) -> None:
        self._refer = refer
        self._keep = keep

    def form(self, value: Any) -> Any:
        """Return the form of ``value``; `TypeError` if it has none."""
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            # JSON has no NaN.
            return value if math.isfinite(value) else {"float": struct.pack(">d", value).hex()}
        if type(value) is tuple:
            return [self.form(part) for part in value]
        if isinstance(value, Op | Type | FrozenFunctionGraph):
            return self._refer(value)
        name = object_name(value)
        return {"named": name} if name is not None else self._tagged(value)

    def _tagged(self, value: Any) -> Any:
        match value:
            case np.str_():
                return str(value)
            case FactState():
                return {"fact": value.value}
            case AssumptionKey():
                return {"assumption": value.name}
            case ScanInfo():
                return {"scan_info": {n: self.form(getattr(value, n)) for n in _fields(value)}}
            case specific_out():
                return {"specific_out": self.form(tuple(value.spec))}
            case frozendict():
                return {"frozendict": self._pairs(value)}
            case np.dtype():
                return {"dtype": dtype_text(value)}
            case np.generic():
                return {"number": short_form(np.asarray(value))}
            case np.random.Generator():
                return {"generator": plain_state(value.bit_generator.state)}
            case np.ndarray() if type(value) in (np.ndarray, np.memmap):
                dtype_text(value.dtype)
                is_short = value.size <= SHORT
                return {"array": short_form(value)} if is_short else {"file": self._keep(value)}
            case slice():
                return {"slice": [self.form(n) for n in (value.start, value.stop, value.step)]}
        if is_sparse(value) and getattr(value, "format", None) in ("csc", "csr"):
            parts = (value.data, value.indices, value.indptr)
            shape = [int(length) for length in value.shape]
            return {value.format: [*map(self.form, parts), shape]}
        if type(value) is complex:
            return {"complex": [self.form(value.real), self.form(value.imag)]}
        if type(value) is list:
            return {"list": [self.form(part) for part in value]}
        if type(value) is dict:
            return {"dict": self._pairs(value)}
        if type(value) in (set, frozenset):
            # Python orders the members by hashes, of texts at random.
            return {type(value).__name__: sorted(map(self.form, value), key=json.dumps)}
        raise TypeError(f"a value of class {type(value).__name__}")

    def _pairs(self, mapping: Any) -> list[Any]:
        return [[self.form(key), self.form(value)] for key, value in mapping.items()]


def _fields(info: ScanInfo) -> list[str]:
    return list(info.__dataclass_fields__)
