"""The content of a graph file as data, to be sent to where no pickle of it is to be loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from scanopt_cli.errors import NotDataError
from scanopt_cli.serialization.data.container import to_file
from scanopt_cli.serialization.files import Blob
from scanopt_cli.serialization.loading import load_blob
from scanopt_cli.serialization.payload import encode
from scanopt_cli.serialization.saving import check_loads


def as_data(file: Blob, *, trust: bool, allow_packages: Sequence[str]) -> Blob:
    """Return the graph in a file as data, under the same name: what is loaded of it is the same.

    Raises
    ------
    LoadError
        If the file holds no graph that is loaded in this way, or data would not be.
    NotDataError
        If something in it cannot be written as data.
    """
    if file.is_data:
        return file
    # Recorded values beside it are data already.
    graph = load_blob(replace(file, values=None), trust=trust, allow_packages=allow_packages)
    if any(variable.default_update is not None for variable in graph.shared):
        raise NotDataError("a default update of a shared variable is no data", where=file.name)
    payload = encode(graph, keep_traces=True) | {"versions": dict(graph.versions)}
    data = to_file(payload)
    check_loads(data, file.name)
    return replace(file, data=data, stands_for=file.facts)
