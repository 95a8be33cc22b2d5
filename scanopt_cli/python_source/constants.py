"""Constants of a graph: as plain numbers, by ``pt.constant``, and in the file beside a script."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from pytensor.graph.basic import Constant
from pytensor.scalar.basic import ScalarConstant
from pytensor.tensor.variable import TensorConstant

from scanopt_cli.python_source.code import (
    Code,
    LongConstant,
    Reference,
    call,
    code,
    paired,
    quoted,
    text,
)
from scanopt_cli.python_source.values import (
    CannotBeWrittenError,
    ValueCodes,
    array_code,
    entries,
    is_short,
    number,
)
from scanopt_cli.serialization.unpickler.generators import BIT_GENERATORS, as_text, plain_state

_MOST_BARE = 6
_LONGEST_STATE = 300


def plain_number(constant: Constant, *, rows: bool = False) -> Code | None:
    """Return a constant as a number, or a short one as a list of ``rows``, if it can be so."""
    data = constant.data
    if isinstance(constant, ScalarConstant) and isinstance(data, np.generic):
        return number(data)
    if not (isinstance(constant, TensorConstant) and isinstance(data, np.ndarray)):
        return None
    is_list = rows and data.ndim == 1 and 0 < data.size <= _MOST_BARE
    return entries(data) if is_short(data) and (is_list or data.ndim == 0) else None


def candidates(constant: Constant, values: ValueCodes) -> Iterator[Code]:
    """Yield expressions that may make ``constant``, the most readable first."""
    data = constant.data
    name = constant.name
    if isinstance(constant, ScalarConstant):
        dtype = quoted(str(constant.type.dtype))
        yield call(Reference("pytensor.scalar", "constant"), [number(data)], {"dtype": dtype})
    elif isinstance(constant, TensorConstant) and isinstance(data, np.ndarray):
        function = Reference("pytensor.tensor", "constant")
        if is_short(data):
            dtype = quoted(str(data.dtype))
            yield call(function, [entries(data)])
            yield call(function, [entries(data)], {"dtype": dtype})
        stored = value_code(data, values, name)
        yield call(function, [stored])
        cls = Reference("pytensor.tensor.variable", "TensorConstant")
        yield call(cls, [values.of(constant.type), stored])
    else:
        public = Reference("pytensor.tensor.type_other", "NoneConst")
        if data is None:
            yield code("{}", public)
        cls_code = values.of(type(constant))
        yield call(cls_code, [values.of(constant.type), value_code(data, values, name)])


def value_code(value: Any, values: ValueCodes, hint: str | None) -> Code:
    """Return what a constant, a shared variable or an argument holds, as an expression."""
    if isinstance(value, np.random.Generator):
        return generator_code(value, hint)
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "biufc":
            raise CannotBeWrittenError(f"an array of {value.dtype}")
        return stored(value, hint)
    if type(value).__module__.startswith("scipy.sparse") and hasattr(value, "indptr"):
        parts = [array_code(part, hint) for part in (value.data, value.indices, value.indptr)]
        shape = values.of(tuple(map(int, value.shape)))
        return call(
            Reference("scipy.sparse", type(value).__name__), [paired(parts)], {"shape": shape}
        )
    return values.of(value)


def stored(value: np.ndarray[Any, Any], hint: str | None) -> Code:
    """Return an array of the file beside the script."""
    return code("{}", LongConstant(value, hint))


def generator_code(value: np.random.Generator, hint: str | None) -> Code:
    """Return a random generator in the state that ``value`` has."""
    state = plain_state(value.bit_generator.state)
    if state.get("bit_generator") not in BIT_GENERATORS:
        raise CannotBeWrittenError(f"a generator of {type(value.bit_generator).__name__}")
    short = repr(state)
    if len(short) <= _LONGEST_STATE:
        given = text(short)
    else:
        kept = stored(np.array(as_text(value)), hint)
        given = call(Reference("json", "loads"), [call(text("str"), [kept])])
    return call(GENERATOR, [given])


def generator(state: Any) -> np.random.Generator:
    """Return a random generator in a state."""
    bits = BIT_GENERATORS[state["bit_generator"]]()
    bits.state = state
    return np.random.Generator(bits)


GENERATOR = Reference(__name__, generator.__name__)
"""A function that a script defines itself, as `GENERATOR_SOURCE`."""
GENERATOR_SOURCE = '''\
def generator(state):
    """Return a random generator in a state."""
    bits = getattr(np.random, state["bit_generator"])()
    bits.state = state
    return np.random.Generator(bits)
'''
