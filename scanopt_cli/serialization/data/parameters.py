"""What of an Op or a Type a file holds: what its constructor takes, and what rewrites have set."""

from __future__ import annotations

from collections.abc import Hashable
from inspect import getattr_static
from typing import Any, cast

from pytensor.assumptions.specify import SpecifyAssumptions
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.mode import Mode
from pytensor.graph.op import Op
from pytensor.graph.type import Type
from pytensor.graph.utils import Scratchpad
from pytensor.scalar.basic import Composite
from pytensor.scalar.loop import ScalarLoop
from pytensor.scan.op import Scan
from pytensor.tensor.optimize import ScipyWrapperOp
from pytensor.tensor.random.op import RandomVariable

from scanopt_cli.serialization.unpickler.constructors import argument_sources
from scanopt_cli.serialization.unpickler.dropping import CACHES
from scanopt_cli.serialization.unpickler.op_state import (
    merged_state,
    rebuild,
    same,
    without_compilation,
)

_OF_SCANS = (
    *("fgraph", "info", "truncate_gradient", "name", "profile", "allow_gc", "strict"),
    *("output_types", "mitmots_preallocated"),
)
_NEEDED: tuple[tuple[type[Any], tuple[str, ...] | None], ...] = (
    (Scan, _OF_SCANS),
    (OpFromGraph, None),
    (ScipyWrapperOp, None),
    (Composite, ("fgraph", "name")),
    (ScalarLoop, ("fgraph", "is_while", "name")),
    (SpecifyAssumptions, ("assumptions",)),
)
"""The attributes that `constructors.make` reads of classes with inner graphs; ``None`` for all."""

_BY_SIGNATURE = frozenset({"ndim_supp", "ndims_params"})


def parameters(thing: Op | Type) -> tuple[type[Any], dict[str, Any]]:
    """Return the class and the parameters of which `rebuild` makes ``thing``.

    An Op that was finalized for a backend is an OpFromGraph, and so is one whose class would build
    another graph than it has.

    Raises
    ------
    StateError
        If no constructor call gives it.
    """
    cls = type(thing)
    state = without_compilation(cls, _plain_state(thing))
    needed = _needed(cls)
    chosen = {n: value for n, value in state.items() if needed is None or n in needed}
    made = rebuild(cls, chosen)
    if type(made) is not cls:
        return parameters(made)
    actual = merged_state(made.__getstate__())
    differing = {
        name
        for name, value in state.items()
        # An Op that was made otherwise may hold what the class of others holds.
        if not same(value, actual.get(name, getattr_static(cls, name, None)))
    }
    if differing - chosen.keys():
        chosen |= {n: state[n] for n in state if n in differing}
        rebuild(cls, chosen)
    return cls, dict(sorted(chosen.items()))


def _needed(cls: type[Any]) -> frozenset[str] | None:
    for base, names in _NEEDED:
        if issubclass(cls, base):
            return None if names is None else frozenset(names)
    found = frozenset(attribute for _, attribute in argument_sources(cast("Hashable", cls)))
    # PyTensor is told them by the signature, and warns of who tells it otherwise.
    return found - _BY_SIGNATURE if issubclass(cls, RandomVariable) else found


def _plain_state(thing: Op | Type) -> dict[str, Any]:
    """Return the attributes of ``thing`` without caches, and without how it was once compiled."""
    return {
        name: None if isinstance(value, Mode | Scratchpad) else value
        for name, value in merged_state(thing.__getstate__()).items()
        if name not in CACHES
    }
