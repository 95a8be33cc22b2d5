"""Values from their forms in the JSON table: see `encoding`.

Nothing is made but what `_TAGS` lists, each after its parts were checked, and an array only where
the file has as many bytes as it declares.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any

import numpy as np
from pytensor.assumptions.core import KEY_REGISTRY, FactState
from pytensor.graph.type import Type
from pytensor.misc.frozendict import frozendict
from pytensor.scalar.basic import specific_out

from scanopt_cli.serialization.archives import array_of
from scanopt_cli.serialization.data.numbers import dtype_of, short_array
from scanopt_cli.serialization.data.objects import named_object
from scanopt_cli.serialization.unpickler.arrays import sparse_from
from scanopt_cli.serialization.unpickler.bounds import KeyBounds
from scanopt_cli.serialization.unpickler.generators import generator_from_state
from scanopt_cli.serialization.unpickler.inner_parts import scan_info

_SPARSE_PARTS = 4
_MOST_READ = 1 << 30
_IN_SLICES = (int, np.integer, Type)


class Arrays:
    """The arrays that have files of their own in the archive; each is made when it is asked for."""

    def __init__(self, files: Sequence[bytes]) -> None:
        self._files = files
        self._made: dict[int, np.ndarray[Any, Any]] = {}
        self._given_away: set[int] = set()
        self._left: float = _MOST_READ

    def stop_counting(self) -> None:
        """Let recorded calls, which nobody hashes, refer to arrays any number of times."""
        self._left = inf

    def array(self, number: Any, *, to_keep: bool) -> np.ndarray[Any, Any]:
        """Return an array by its number; constants and recorded calls share one.

        With ``to_keep``, it is for a shared variable, whose contents may be overwritten.
        """
        if type(number) is not int or not 0 <= number < len(self._files):
            raise ValueError("the number of an array that is not in the file")
        # Whoever hashes or checks the values goes through an array wherever it occurs.
        self._left -= len(self._files[number])
        if self._left < 0:
            raise ValueError(f"its constants refer to more than {_MOST_READ:,} bytes of arrays")
        if number in self._given_away or (to_keep and number in self._made):
            raise ValueError("a shared variable whose array is that of something else, too")
        if to_keep:
            self._given_away.add(number)
            return array_of(self._files[number])
        if number not in self._made:
            self._made[number] = array_of(self._files[number])
        return self._made[number]

    def check_all_used(self) -> None:
        """Check that nothing is in the archive that no value needs; `ValueError` if so."""
        if len(self._made) + len(self._given_away) < len(self._files):
            raise ValueError("it holds an array that nothing refers to")


class Decoder:
    """Reads values, of one file.

    Parameters
    ----------
    refer
        Returns the part that a reference of some kind stands for.
    arrays
        The arrays that have files of their own.
    """

    def __init__(self, refer: Callable[[str, Any], Any], arrays: Arrays) -> None:
        self._refer = refer
        self._arrays = arrays
        self._keys = KeyBounds()
        self._to_keep = False

    def value(self, form: Any) -> Any:
        """Return what ``form`` stands for; an exception of some kind if it is none."""
        kind = type(form)
        if kind is list:
            return tuple(self.value(part) for part in form)
        if kind is not dict:
            return form
        if len(form) != 1:
            raise ValueError("a value with more or fewer keys than one")
        ((tag, content),) = form.items()
        if tag in ("op", "type", "graph"):
            return self._refer(tag, content)
        if tag not in _TAGS:
            raise ValueError(f"a value of the unknown kind {tag[:80]!r}")
        return _TAGS[tag](self, content)

    def contents(self, form: Any) -> Any:
        """Return the contents of a shared variable, which nothing else shares."""
        self._to_keep = True
        try:
            return self.value(form)
        finally:
            self._to_keep = False

    def _list(self, content: Any) -> list[Any]:
        return [self.value(part) for part in _listed(content)]

    def _dict(self, content: Any) -> dict[Any, Any]:
        made = {}
        for pair in _listed(content):
            key, value = self._list(pair)
            made[self._keys.checked(key)] = value
        return made

    def _set(self, content: Any) -> set[Any]:
        return {self._keys.checked(part) for part in self._list(content)}

    def _slice(self, content: Any) -> slice:
        start, stop, step = self._list(content)
        if not all(part is None or isinstance(part, _IN_SLICES) for part in (start, stop, step)):
            raise ValueError("a slice of something else than numbers")
        return slice(start, stop, step)

    def _complex(self, content: Any) -> complex:
        real, imaginary = self._list(content)
        if type(real) is not float or type(imaginary) is not float:
            raise ValueError("a complex number that is not made of two numbers")
        return complex(real, imaginary)

    def _scan_info(self, content: Any) -> Any:
        if type(content) is not dict:
            raise ValueError("the slots of a Scan are no table")
        return scan_info({name: self.value(form) for name, form in content.items()})

    def _specific_out(self, content: Any) -> specific_out:
        kinds = self._list(content)
        if not all(isinstance(kind, Type) for kind in kinds):
            raise ValueError("types that are none")
        return specific_out(*kinds)

    def _file(self, number: Any) -> Any:
        return self._arrays.array(number, to_keep=self._to_keep)

    def _sparse(self, kind: str, content: Any) -> Any:
        if len(_listed(content)) != _SPARSE_PARTS:
            raise ValueError("a sparse matrix that is not made of three arrays and a shape")
        data, indices, indptr, shape = content
        if any(type(length) is not int or length < 0 for length in _listed(shape)):
            raise ValueError("a sparse matrix whose shape is not one")
        parts = [self.value(part) for part in (data, indices, indptr)]
        return sparse_from(kind, parts[0], parts[1], parts[2], tuple(shape))


def _listed(content: Any) -> list[Any]:
    if type(content) is not list:
        raise ValueError("something else where a list belongs")
    return content


def _float(content: Any) -> float:
    (made,) = struct.unpack(">d", bytes.fromhex(content))
    return float(made)


def _number(content: Any) -> Any:
    made = short_array(content)
    if made.ndim:
        raise ValueError("a number that is an array")
    return made[()]


def _fact(content: Any) -> FactState:
    if type(content) is not int:
        raise ValueError("a state of a fact that is no number")
    return FactState(content)


_TAGS: Mapping[str, Callable[[Decoder, Any], Any]] = {
    "list": Decoder._list,
    "dict": Decoder._dict,
    "frozendict": lambda decoder, content: frozendict(decoder._dict(content)),
    "set": Decoder._set,
    "frozenset": lambda decoder, content: frozenset(decoder._set(content)),
    "slice": Decoder._slice,
    "float": lambda _, content: _float(content),
    "complex": Decoder._complex,
    "number": lambda _, content: _number(content),
    "array": lambda _, content: short_array(content),
    "file": Decoder._file,
    "dtype": lambda _, content: dtype_of(content),
    "csc": lambda decoder, content: decoder._sparse("csc", content),
    "csr": lambda decoder, content: decoder._sparse("csr", content),
    "generator": lambda _, content: generator_from_state(content),
    "named": lambda _, content: named_object(content),
    # Only keys that are there: making one would register it and its rules.
    "assumption": lambda _, content: KEY_REGISTRY[content],
    "fact": lambda _, content: _fact(content),
    "scan_info": Decoder._scan_info,
    "specific_out": Decoder._specific_out,
}
"""The kinds of values that are no plain ones, by the one key of their form.

``list``, ``dict``, ``frozendict``, ``set``, ``frozenset``: containers; dictionaries by pairs.
``slice``: start, stop and step.
``float``: NaN or an infinity, by its bytes in hexadecimal, most significant first.
``complex``: real and imaginary part.
``number``, ``array``: a NumPy number and a short array, in the form of `numbers`.
``file``: the array in ``arrays/NUMBER.npy``.
``dtype``: a dtype of NumPy's.
``csc``, ``csr``: a sparse matrix: data, indices, indptr and shape.
``generator``: a random generator by the state of its bit generator.
``named``: a function or an exception of the closed table of `objects`.
``assumption``, ``fact``: what PyTensor may assume of a matrix.
``scan_info``, ``specific_out``: parts of Scans, and of casts.
"""
