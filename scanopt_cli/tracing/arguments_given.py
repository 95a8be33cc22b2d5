"""The arguments that loops are traced on: given, recorded, or none, so that they are drawn."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from typing import Any

import numpy as np
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable

from scanopt_cli.errors import ScanoptError
from scanopt_cli.ir.graph import Graph, listed_names
from scanopt_cli.text import few, plural
from scanopt_cli.tracing.requests import Arguments

type ArgumentsLike = Mapping[str, Any] | Sequence[Any] | str | PathLike[str] | None
"""Arguments by name or in order, or the path of a file of them, which ``numpy.savez`` wrote."""

_LISTED = 8
_HINT = "write arguments by numpy.savez"


def arguments_of(graph: Graph, given: ArgumentsLike, seed: int) -> Arguments:
    """Return the arguments of a graph: those given, those of its first recorded call, or none.

    Shared variables have their contents, unless they are given by name.

    Raises
    ------
    ScanoptError
        If they do not fit the graph's inputs, or their file cannot be read.
    """
    contents = graph.values
    if given is None:
        if not graph.recorded:
            return Arguments(values=None, text="", contents=contents, seed=seed)
        values = graph.recorded[0]
        return Arguments(values=values, text="recorded call 1", contents=contents, seed=seed)
    where, text = "arguments", "given"
    if isinstance(given, str | PathLike):
        where = text = fspath(given)
        given = _read(where)
    by_place = _by_place(graph, given, where)
    values = tuple(
        _fitting(variable, by_place[place] if place in by_place else contents[place], where)
        for place, variable in enumerate(graph.fgraph.inputs)
    )
    return Arguments(values=values, text=text, contents=contents, seed=seed)


def _by_place(graph: Graph, given: Mapping[str, Any] | Sequence[Any], where: str) -> dict[int, Any]:
    """Return the given values by the position of their input."""
    inputs = graph.fgraph.inputs
    own = [p for p, variable in enumerate(inputs) if not isinstance(variable, SharedVariable)]
    if isinstance(given, Mapping) and not _is_in_order(given):
        places = {str(v.name): place for place, v in enumerate(inputs) if v.name is not None}
        unknown = [name for name in given if name not in places]
        missing = [place for place in own if str(inputs[place].name) not in given]
        if unknown or missing:
            what = f"there is no input {unknown[0]!r}" if unknown else _missing(inputs, missing)
            known = f"inputs: {listed_names(inputs)}" if inputs else "it has no inputs"
            raise ScanoptError(what, where=where, hint=known)
        return {places[name]: value for name, value in given.items()}
    listed = list(given.values()) if isinstance(given, Mapping) else list(given)
    if len(listed) != len(own):
        raise ScanoptError(
            f"the graph takes {plural(len(own), 'argument')}, and there are {len(listed)}",
            where=where,
            hint=f"inputs: {listed_names([inputs[p] for p in own])}" if own else None,
        )
    return dict(zip(own, listed, strict=True))


def _is_in_order(given: Mapping[str, Any]) -> bool:
    """Whether arrays have the names that ``numpy.savez`` gives to those without one."""
    return bool(given) and list(given) == [f"arr_{place}" for place in range(len(given))]


def _missing(inputs: Sequence[Variable], places: Sequence[int]) -> str:
    names = [str(inputs[place].name or f"number {place}") for place in places]
    return f"{few(names, _LISTED)} {'is' if len(names) == 1 else 'are'} missing"


def _fitting(variable: Variable, value: Any, where: str) -> Any:
    try:
        return variable.type.filter(value, allow_downcast=True)
    except (TypeError, ValueError) as error:
        name = variable.name or "an input without a name"
        reason = str(error).partition("\n")[0][:200]
        raise ScanoptError(f"{name} is no {variable.type}: {reason}", where=where) from None


def _read(path: str) -> dict[str, Any]:
    try:
        found: Any = np.load(path, allow_pickle=False)
        if isinstance(found, np.ndarray):
            raise ScanoptError("holds one array without a name", where=path, hint=_HINT)
        with found:
            return {name: found[name] for name in found.files}
    except OSError as error:
        raise ScanoptError(f"cannot be read: {error.strerror or error}", where=path) from None
    except (ValueError, EOFError, zipfile.BadZipFile, KeyError, MemoryError):
        raise ScanoptError("is no file of arrays", where=path, hint=_HINT) from None
