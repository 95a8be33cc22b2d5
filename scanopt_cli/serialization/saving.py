"""Writing a graph to a file that loads safely, at any depth, on another machine."""

from __future__ import annotations

import io
import os
import pickle
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytensor.graph.op import Op
from pytensor.graph.utils import Scratchpad

from scanopt_cli.errors import ConfusedGraphError, LoadError, NotDataError, ScanoptError
from scanopt_cli.ir.folding import bounded_folding
from scanopt_cli.ir.graph import Graph, GraphLike, as_graph, listed_names, loaded_graph
from scanopt_cli.ir.interning import untouched_inner_inputs
from scanopt_cli.serialization.data.container import payload_of, to_file
from scanopt_cli.serialization.files import DATA_MAGIC, check_size, is_data_path, zipped
from scanopt_cli.serialization.loading import interpret
from scanopt_cli.serialization.payload import encode
from scanopt_cli.serialization.unpickler.allowlist import Allowlist, Refusal
from scanopt_cli.serialization.unpickler.dropping import reduced_op
from scanopt_cli.serialization.unpickler.graph_builder import build
from scanopt_cli.serialization.unpickler.pickle_handlers import HANDLED
from scanopt_cli.serialization.unpickler.records import read_records
from scanopt_cli.serialization.writing import write_atomically


class LostUpdateWarning(UserWarning):
    """A shared variable has a default update, which its file does not hold."""


def save(
    graph: GraphLike,
    path: str | os.PathLike[str],
    *,
    keep_traces: bool = False,
    trust: bool = False,
) -> None:
    """Write ``graph`` to ``path``, gzipped if the name ends in ``.gz``, whole or not at all.

    A name that ends in ``.scanopt`` is that of a file of data, which any later version reads, and
    which holds Ops and Types of PyTensor and its family alone. Any other is that of a pickle.

    The file holds the graph, its names and notes, its shared variables with their present contents,
    and the versions of PyTensor, NumPy and scanopt. It holds no code: cached gradients and compiled
    functions of ops stay behind, and so do the places in the source where variables were made,
    unless ``keep_traces`` is true. Default updates of shared variables stay behind with a
    `LostUpdateWarning`; list them as outputs to keep them. The caller's graph and ops are not
    changed. The same graph gives the same bytes.

    What is written, `load` reads: that is tried before anything is written. It is not tried if an
    op is of a class that `load` does not admit by itself, so that a reader has to admit its package
    or to trust the file; nor with ``trust``, and then the file may need it.

    Raises
    ------
    ScanoptError
        If ``graph`` is no graph, an op of it cannot be pickled, `load` would refuse the file, or it
        cannot be written.
    NotDataError
        If an op of it cannot be written as data, and the name asks for that.
    """
    target = Path(path)
    write_atomically(target, file_of(graph, target, keep_traces=keep_traces, trust=trust))


def file_of(
    graph: GraphLike, target: Path, *, keep_traces: bool = False, trust: bool = False
) -> bytes:
    """Return the bytes that `save` writes to ``target``, or raise the error that it raises."""
    given = loaded_graph(graph)
    whole = _with_lost_updates(given if isinstance(given, Graph) else as_graph(given), target)
    payload = encode(whole, keep_traces=keep_traces)
    data = _as_data(payload, target) if is_data_path(target) else _pickled(payload, target)
    written = zipped(data) if target.suffix == ".gz" else data
    hint = "make inputs of large constants and shared variables"
    try:
        check_size(max(len(data), len(written)), str(target))
        if not trust:
            hint = "change that, or trust it: save(..., trust=True), load(..., trust=True), --trust"
            check_loads(data, str(target))
    except LoadError as error:
        raise ScanoptError(
            f"is not written, since it would not load: {error.what}", where=str(target), hint=hint
        ) from None
    return written


def _as_data(payload: Mapping[str, Any], target: Path) -> bytes:
    try:
        return to_file(payload)
    except NotDataError as error:
        hint = "name the file .pkl: a pickle holds such Ops"
        raise NotDataError(error.what, where=str(target), hint=hint) from None


def _pickled(payload: Mapping[str, Any], target: Path) -> bytes:
    stream = io.BytesIO()
    try:
        _GraphPickler(stream).dump(payload)
    except Exception as error:
        culprit = next((op for op in payload["ops"] if not _can_be_pickled(op)), None)
        what = "a value of the graph" if culprit is None else f"op {culprit}"
        raise ScanoptError(
            f"{what} cannot be pickled: {error}",
            where=str(target),
            hint="define its class and its functions at the top of an importable module; what a "
            "library makes at run time (pm.CustomDist) can only be compiled inside of enabled()",
        ) from error
    return stream.getvalue()


def _with_lost_updates(graph: Graph, target: Path) -> Graph:
    """Return ``graph`` with a note on its default updates, and warn of them, if there are some."""
    updated = [variable for variable in graph.shared if variable.default_update is not None]
    if not updated:
        return graph
    names = listed_names(updated)
    note = f"the default updates of {names} are not in the file; list them as outputs to keep them"
    warnings.warn(f"{target}: {note}", LostUpdateWarning, stacklevel=4)
    return replace(graph, notes=(*graph.notes, note))


@bounded_folding()
def check_loads(data: bytes, where: str) -> None:
    """Check that `load` reads a file of ``data``; `LoadError` if it does not.

    Nothing is checked if its reader has to say that a package is admitted, or the file trusted.
    """
    # PyTensor may confuse it with a graph of this process, which a reader does not have.
    with suppress(ConfusedGraphError), untouched_inner_inputs():
        if data.startswith(DATA_MAGIC):
            interpret(payload_of(data, where), where)
            return
        recording, allowlist = read_records(data, where), Allowlist(HANDLED)
        verdicts = (allowlist.resolve(found.module, found.name) for found in recording.globals)
        if not any(isinstance(verdict, Refusal) for verdict in verdicts):
            interpret(build(recording, where, allowlist, len(data)), where)


def _can_be_pickled(op: Op) -> bool:
    try:
        _GraphPickler(io.BytesIO()).dump(op)
    except Exception:
        return False
    return True


class _GraphPickler(pickle.Pickler):
    """Plain pickle that leaves caches and tags behind, without touching what it writes."""

    def __init__(self, stream: io.BytesIO) -> None:
        super().__init__(stream, protocol=5)

    def reducer_override(self, thing: Any) -> Any:
        if isinstance(thing, Scratchpad):
            return Scratchpad, ()
        return reduced_op(thing) if isinstance(thing, Op) else NotImplemented
