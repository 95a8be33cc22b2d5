"""Reading a graph from a file, whatever form the file holds it in."""

from __future__ import annotations

import io
import os
import pickle
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytensor
from pytensor.compile.executor import Function
from pytensor.graph.basic import NominalVariable, Variable
from pytensor.graph.fg import FrozenFunctionGraph, FunctionGraph

from scanopt_cli.errors import LoadError, ScanoptError, brief
from scanopt_cli.ir.folding import bounded_folding
from scanopt_cli.ir.graph import Graph, as_graph, from_io
from scanopt_cli.ir.inner_graphs import all_graphs, unfolded, walk
from scanopt_cli.ir.node_types import type_error
from scanopt_cli.ir.scan_view import scan_op
from scanopt_cli.serialization.compiled import CompiledGraph, graph_of, inspect_function
from scanopt_cli.serialization.data.container import payload_of
from scanopt_cli.serialization.files import DATA_MAGIC, Blob, read_blob, unpacked
from scanopt_cli.serialization.payload import FORMAT, decode, output_name
from scanopt_cli.serialization.unpickler.graph_builder import read_safely
from scanopt_cli.serialization.values import calls_of
from scanopt_cli.text import with_article

MOST_NODES = 120_000
"""The most nodes outside of inner graphs: PyTensor's own rewrites take a minute for so many."""
MOST_UNFOLDED = 300_000
"""The most nodes, counted at each application: nested graphs that share a body have few distinct
nodes, but the time to visit each application grows exponentially with their depth."""

DEEPEST = 25
"""How deep inner graphs may be nested: derivatives take time quadratic in that."""


class VersionWarning(UserWarning):
    """A file was written by another version of PyTensor than the one that reads it."""


def load(
    path: str | os.PathLike[str],
    *,
    trust: bool = False,
    allow_packages: Sequence[str] = (),
    recorded: bool = True,
) -> Graph:
    """Read the graph in ``path``: data (``.scanopt``), or a pickle or cloudpickle of any protocol.

    Its content tells which, not its name; either may be gzipped. A file of data names classes of a
    closed table alone, and runs nothing. A pickle holds what `save` writes, a FunctionGraph, a
    FrozenFunctionGraph, a Variable, a list, tuple or dict of output Variables, an (inputs, outputs)
    pair of lists, a dict with the keys ``inputs`` and ``outputs``, or a compiled Function (of which
    the optimised graph is returned, without in-placing). Shared variables are shared variables of
    the result, with the contents that the file gives them. Recorded calls in ``NAME.values.npz``
    beside the file are in `Graph.recorded`.

    Parameters
    ----------
    path
        The file.
    trust
        Load any pickle by plain unpickling, which runs whatever code the file asks for. Without it
        nothing that the file names is called: see `scanopt_cli.serialization.unpickler.builder`.
    allow_packages
        Packages, beside PyTensor's own family, whose classes of graphs pickles may hold. They are
        imported, so name only packages you would import.
    recorded
        Read recorded calls as well, which only a verification needs.

    Raises
    ------
    LoadError
        If the file cannot be read or holds no graph.
    UnsafeFileError
        If it holds something that is not loaded without ``trust``.
    """
    file = read_blob(Path(path), recorded=recorded)
    return load_blob(file, trust=trust, allow_packages=allow_packages)


@bounded_folding()
def load_blob(file: Blob, *, trust: bool = False, allow_packages: Sequence[str] = ()) -> Graph:
    """Read the graph in the content of a file, with the recorded calls in it, as `load` does.

    Raises
    ------
    LoadError
        If it holds no graph.
    UnsafeFileError
        If it holds something that is not loaded without ``trust``.
    """
    data = unpacked(file.data, file.name)
    graph = _loaded(data, file.name, trust=trust, allow_packages=allow_packages)
    _warn_of_version(graph)
    return graph if file.values is None else _with_recorded(graph, file)


def _loaded(data: bytes, where: str, *, trust: bool, allow_packages: Sequence[str]) -> Graph:
    if data.startswith(DATA_MAGIC):
        return interpret(payload_of(data, where), where)
    held = _unpickle(data, where) if trust else read_safely(data, where, allow_packages)
    return interpret(held, where, trust=trust)


def _unpickle(data: bytes, where: str) -> Any:
    try:
        return pickle.load(io.BytesIO(data))
    except Exception as error:
        raise LoadError(
            f"cannot be unpickled: {brief(error)}",
            where=where,
            hint="check that what it needs is installed, or write it again",
        ) from error


def interpret(held: Any, where: str, *, trust: bool = False) -> Graph:
    """Return the graph that an unpickled object stands for, after type-checking its nodes.

    With ``trust``, only Scans are checked.

    Raises
    ------
    LoadError
        If it stands for none.
    """
    try:
        is_ours = isinstance(held, Mapping) and held.get("format") == FORMAT
        graph = decode(held, where) if is_ours else _graph_of(held, where)
        _check_size(graph.fgraph)
        # An Op of the user's own may take what it would not make; the passes take loops apart.
        nodes = (n for n in walk(graph.fgraph, all_graphs) if not trust or scan_op(n) is not None)
        problem = type_error(nodes)
    except ScanoptError as error:
        raise LoadError(error.what, where=where, hint=error.hint) from None
    except Exception as error:
        raise LoadError(
            f"does not describe a graph: {brief(error)}", where=where, hint="write it again"
        ) from None
    if any(isinstance(variable, NominalVariable) for variable in graph.fgraph.variables):
        problem = "has an input of an inner graph outside of it"
    if problem is not None:
        raise LoadError(problem, where=where, hint="write it again")
    return graph


def _check_size(fgraph: FunctionGraph) -> None:
    if len(fgraph.apply_nodes) > MOST_NODES:
        raise LoadError(f"has more than {MOST_NODES:,} nodes")
    nodes, depth = unfolded(fgraph)
    if depth > DEEPEST:
        raise LoadError(f"has more than {DEEPEST} inner graphs inside of each other")
    if nodes > MOST_UNFOLDED:
        raise LoadError(
            f"has more than {MOST_UNFOLDED:,} nodes in its inner graphs, "
            "counted wherever they are applied"
        )


def _graph_of(held: Any, where: str) -> Graph:
    match held:
        case Function():
            return _graph_of(inspect_function(held), where)
        case CompiledGraph():
            _check_size(held.fgraph)
            return graph_of(held, where)
        case FunctionGraph() | FrozenFunctionGraph():
            return as_graph(held, source=where)
        case Variable():
            return from_io(None, [held], source=where)
        case {"inputs": inputs, "outputs": outputs, **more} if not more:
            return _from_pair(inputs, outputs, where)
        case (list() | tuple() as inputs, list() | tuple() | Variable() as outputs):
            return _from_pair(inputs, outputs, where)
        case list() | tuple() if _are_variables(held):
            return from_io(None, held, source=where)
        case dict() if _are_variables(list(held.values())):
            graph = from_io(None, list(held.values()), source=where)
            return replace(graph, output_names=tuple(map(output_name, held)))
    raise LoadError(
        f"holds {with_article(type(held).__name__)}, not a graph",
        where=where,
        hint="pickle a FunctionGraph, its outputs or an (inputs, outputs) pair",
    )


def _from_pair(inputs: Any, outputs: Any, where: str) -> Graph:
    """Build a graph from what stands for its inputs and outputs, a dict of outputs included."""
    names = tuple(map(output_name, outputs)) if isinstance(outputs, dict) else ()
    listed = [*outputs.values()] if isinstance(outputs, dict) else outputs
    parts = [[part] if isinstance(part, Variable) else part for part in (inputs, listed)]
    if not all(isinstance(part, list | tuple) for part in parts):
        raise LoadError("its inputs and outputs are not lists of Variables", where=where)
    return replace(as_graph((parts[0], parts[1]), source=where), output_names=names)


def _are_variables(parts: Sequence[Any]) -> bool:
    return bool(parts) and all(isinstance(part, Variable) for part in parts)


def _warn_of_version(graph: Graph) -> None:
    written = graph.versions.get("pytensor")
    if written is not None and written != pytensor.__version__:
        warnings.warn(
            f"{graph.source}: written with PyTensor {written}, read with {pytensor.__version__}",
            VersionWarning,
            stacklevel=5,
        )


def _with_recorded(graph: Graph, file: Blob) -> Graph:
    try:
        recorded = calls_of(file, len(graph.fgraph.inputs))
    except LoadError as error:
        return replace(graph, notes=(*graph.notes, str(error)))
    return replace(graph, recorded=recorded) if recorded else graph
