"""Ops and types made anew from the state that a file gives them, and refused if it differs.

Honest classes can carry hostile state: names that are imported and called while constants are
folded, strings that are pasted into generated code, attributes that shadow methods. So no state is
ever set on an op. Each op is made by its own constructor from those of its properties that are
plain values, and the op that comes out must have the state that the file gave, attribute by
attribute. What a constructor would copy without looking, and what is executed later, is never
handed to it.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np
from pytensor.compile.builders import FinalizedOpFromGraph, OpFromGraph, SymbolicOp
from pytensor.graph.fg import FrozenFunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.type import Type
from pytensor.misc.frozendict import frozendict
from pytensor.scan.op import Scan

from scanopt_cli.errors import brief
from scanopt_cli.serialization.unpickler.attributes import check_attributes
from scanopt_cli.serialization.unpickler.constructors import StateError, builds_its_graph, make

_OF_ANY_GRAPH = frozenset(OpFromGraph.__init__.__code__.co_names)
"""The attributes that every OpFromGraph has, among other names."""


def rebuild(cls: type[Any], state: Mapping[str, Any]) -> Any:
    """Return a new instance of ``cls``, an Op or Type class, that has the given state.

    ``state`` maps attribute names to values that were rebuilt themselves; caches are left out. An
    Op that was finalized for a backend becomes an OpFromGraph that is inlined; one whose class
    builds another graph than it has becomes a plain OpFromGraph.

    Raises
    ------
    StateError
        If no constructor call gives an instance with that state.
    """
    if issubclass(cls, FinalizedOpFromGraph):
        # Its class says how a backend evaluates the graph, by attributes that nobody compares with
        # the graph itself.
        return rebuild(OpFromGraph, _of_any_graph(state) | {"is_inline": True})
    check_attributes(cls, state)
    try:
        made = make(cls, state)
        actual = merged_state(made.__getstate__())
        for name, value in state.items():
            expected = actual[name] if name in actual else _class_attribute(cls, name)
            if not same(value, expected):
                raise StateError(f"attribute {name!r} is not what its constructor makes of it")
        hash(made)
    except (StateError, RecursionError):
        raise
    except Exception as error:
        raise StateError(f"its constructor fails: {brief(error)}") from None
    if isinstance(made, SymbolicOp) and not builds_its_graph(made):
        # Rewrites know it by class and properties, and would compile another graph than its own,
        # which a pass may have rewritten.
        return rebuild(OpFromGraph, _of_any_graph(state) | {"name": made.name or cls.__name__})
    return made


def _of_any_graph(state: Mapping[str, Any]) -> dict[str, Any]:
    return {name: state[name] for name in state.keys() & _OF_ANY_GRAPH}


def without_compilation(cls: type[Any], state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state of a loop without what compilation has set, which a reader sets anew."""
    kept = dict(state)
    if issubclass(cls, Scan):
        kept["mode"] = None  # that of whoever compiled it; PyTensor would link by it
        # PyTensor takes a loop in place for equal to one that is not, in bodies as well.
        kept |= {"destroy_map": {}} if "destroy_map" in kept else {}
    if "former" in kept:  # so it is of a TracedLoop that was a Scan
        kept["mode"] = None
    if "destroyed" in kept:  # so is a `Loop`, whose class is imported where a file has one
        kept |= {"destroyed": (), "destroy_map": {}}
    return kept


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


def same(left: Any, right: Any) -> bool:
    """Whether two values are the same, types included; ops and types by their own equality."""
    if isinstance(left, int | np.integer) and not isinstance(left, bool):
        return isinstance(right, int | np.integer) and not isinstance(right, bool) and left == right
    if isinstance(left, FrozenFunctionGraph | Op | Type) or type(left) is not type(right):
        return bool(type(left) is type(right) and left == right)
    if isinstance(left, dict | frozendict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, np.ndarray):
        return left.dtype == right.dtype and bool(np.array_equal(left, right))
    return left is right or bool(left == right) or (left != left and right != right)
