"""Which input grows, to which sizes: read from what a user gives, and checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.tensor.type import TensorType, discrete_dtypes

from scanopt_cli.benchmarking.requests import Growth
from scanopt_cli.errors import ScanoptError
from scanopt_cli.text import few

type GrowthLike = Mapping[str, Sequence[int]] | str | None
"""An input and its lengths or numbers: ``{"n": [10, 100]}``, or ``n=10,100``."""

_WHERE = "--grow"
_LARGEST = 10**9
_LISTED = 12


def growth_of(inputs: Sequence[Variable], given: GrowthLike) -> Growth | None:
    """Return what grows, if anything does.

    Raises
    ------
    ScanoptError
        If there is no such input, it has no length, or there are fewer than two sizes.
    """
    if given is None:
        return None
    name, sizes = _parsed(given)
    if len(sizes) < 2:
        raise ScanoptError("takes two sizes or more", where=_WHERE, hint="as in n=10,100,1000")
    if not all(1 <= size <= _LARGEST for size in sizes):
        raise ScanoptError(f"sizes are from 1 to {_LARGEST:,}", where=_WHERE)
    growing = [(place, v) for place, v in enumerate(inputs) if _can_grow(v)]
    found = next((place for place, v in growing if v.name == name), None)
    if found is None:
        known = [str(v.name) for _, v in growing if v.name is not None]
        why = (
            f"input {name!r} has no length that can grow, and is no whole number"
            if any(v.name == name for v in inputs)
            else f"there is no input {name!r}"
        )
        hint = f"what can grow: {few(known, _LISTED) or 'no input'}"
        raise ScanoptError(why, where=_WHERE, hint=hint)
    return Growth(found, tuple(sorted({*sizes})))


def _parsed(given: Mapping[str, Sequence[int]] | str) -> tuple[str, list[int]]:
    if isinstance(given, Mapping):
        if len(given) != 1:
            raise ScanoptError("takes one input", where=_WHERE)
        ((name, listed),) = given.items()
        texts = [str(size) for size in listed]
    else:
        name, equals, text = given.partition("=")
        if not equals:
            raise ScanoptError(
                f"{given!r} names no input", where=_WHERE, hint="as in n=10,100,1000"
            )
        name, texts = name.strip(), text.split(",")
    try:
        return name, [int(text) for text in texts]
    except ValueError:
        raise ScanoptError(
            f"{', '.join(texts)!r} are no whole numbers", where=_WHERE, hint="as in n=10,100,1000"
        ) from None


def _can_grow(variable: Variable) -> bool:
    """Whether it is a whole number, or an array whose first length the type leaves open."""
    kind = variable.type
    if isinstance(variable, SharedVariable) or not isinstance(kind, TensorType):
        return False
    return kind.shape[0] is None if kind.ndim else kind.dtype in discrete_dtypes
