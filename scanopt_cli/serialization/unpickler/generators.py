"""Random generators from their plain state, checked so that NumPy can't be made to misread it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

BIT_GENERATORS: Mapping[str, type[np.random.BitGenerator]] = {
    "MT19937": np.random.MT19937,
    "PCG64": np.random.PCG64,
    "PCG64DXSM": np.random.PCG64DXSM,
    "Philox": np.random.Philox,
    "SFC64": np.random.SFC64,
}
"""NumPy's own bit generators, by the name that their state carries."""

_WORDS = {  # fields of state["state"] with their length, 0 for one integer; and the word size
    "MT19937": ({"key": 624, "pos": 0}, 32),
    "PCG64": ({"state": 0, "inc": 0}, 128),
    "PCG64DXSM": ({"state": 0, "inc": 0}, 128),
    "Philox": ({"counter": 4, "key": 2}, 64),
    "SFC64": ({"state": 4}, 64),
}
_MAX_POSITION = {"MT19937": 624}
_PHILOX_BUFFER = 4


def generator_from_state(state: Mapping[str, Any]) -> np.random.Generator:
    """Return a generator in ``state``, the dictionary that a bit generator's ``state`` gives.

    Raises
    ------
    ValueError
        If ``state`` is not the state of one of NumPy's bit generators.
    """
    name = state.get("bit_generator")
    if not isinstance(name, str) or name not in BIT_GENERATORS:
        raise ValueError("not the state of one of NumPy's bit generators")
    fields, bits = _WORDS[name]
    inner = state.get("state")
    if not isinstance(inner, Mapping) or set(inner) != set(fields):
        raise ValueError(f"not the state of a {name}")
    checked: dict[str, Any] = {"bit_generator": name, "state": {}}
    for field, length in fields.items():
        checked["state"][field] = _words(inner[field], length, bits)
    if checked["state"].get("pos", 0) > _MAX_POSITION.get(name, 0):
        raise ValueError(f"not a position in the state of a {name}")
    if name == "Philox":
        checked["buffer"] = _words(state.get("buffer"), _PHILOX_BUFFER, 64)
        checked["buffer_pos"] = _integer(state.get("buffer_pos"), _PHILOX_BUFFER)
    if name != "MT19937":
        checked["has_uint32"] = _integer(state.get("has_uint32"), 1)
        checked["uinteger"] = _integer(state.get("uinteger"), 2**32 - 1)
    bit_generator = BIT_GENERATORS[name](0)
    bit_generator.state = checked
    return np.random.Generator(bit_generator)


def as_text(generator: np.random.Generator) -> str:
    """Return the state of a generator as JSON."""
    return json.dumps(plain_state(generator.bit_generator.state))


def from_text(text: str) -> np.random.Generator:
    """Return a generator in a state that `as_text` gave.

    Raises
    ------
    ValueError
        As `generator_from_state` does.
    """
    return generator_from_state(json.loads(text))


def plain_state(state: Any) -> Any:
    """Return a bit generator's ``state`` with lists for arrays and Python's own integers."""
    if isinstance(state, Mapping):
        return {str(key): plain_state(value) for key, value in state.items()}
    return state.tolist() if isinstance(state, np.ndarray | np.generic) else state


def _words(value: Any, length: int, bits: int) -> Any:
    if not length:
        return _integer(value, 2**bits - 1)
    if not isinstance(value, list | tuple | np.ndarray) or np.shape(value)[:1] != (length,):
        raise ValueError("a part of the state has the wrong length")
    return np.array([_integer(word, 2**bits - 1) for word in value], dtype=f"u{bits // 8}")


def _integer(value: Any, most: int) -> int:
    number = int(value) if isinstance(value, int | np.integer) else -1
    if not 0 <= number <= most:
        raise ValueError("a part of the state is out of range")
    return number
