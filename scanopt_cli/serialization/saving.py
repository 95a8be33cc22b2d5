"""Writing a graph to a file that loads safely, at any depth, on another machine."""

from __future__ import annotations

import gzip
import io
import os
import pickle
from pathlib import Path
from typing import Any

from pytensor.graph.op import Op
from pytensor.graph.utils import Scratchpad

from scanopt_cli.errors import ScanoptError
from scanopt_cli.ir.graph import Graph, GraphLike, as_graph
from scanopt_cli.serialization.payload import encode
from scanopt_cli.serialization.unpickler.dropping import reduced_op
from scanopt_cli.serialization.writing import write_atomically


def save(graph: GraphLike, path: str | os.PathLike[str], *, keep_traces: bool = False) -> None:
    """Write ``graph`` to ``path``, gzipped if the name ends in ``.gz``, whole or not at all.

    The file holds the graph, its names, values and notes, and the versions of PyTensor, NumPy and
    scanopt. It holds no code: cached gradients and compiled functions of ops stay behind, and so
    do the places in the source where variables were made, unless ``keep_traces`` is true. The
    caller's graph and ops are not changed. The same graph gives the same bytes.

    Raises
    ------
    ScanoptError
        If ``graph`` is no graph, an op of it cannot be pickled, or the file cannot be written.
    """
    target = Path(path)
    whole = graph if isinstance(graph, Graph) else as_graph(graph)
    stream = io.BytesIO()
    payload = encode(whole, keep_traces=keep_traces)
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
    data = stream.getvalue()
    if target.suffix == ".gz":
        data = gzip.compress(data, mtime=0)
    write_atomically(target, data)


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
