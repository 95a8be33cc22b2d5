"""Files of data, taken apart and put together in another way."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt

from scanopt_cli.serialization.archives import members_of, packed
from scanopt_cli.serialization.saving import save
from support.graph_building import scan

type Change = Callable[[dict[str, Any], dict[str, bytes]], None]
"""Changes the table of a file, or the files of its arrays."""


def small_graph() -> Any:
    """Inputs and outputs of a loop that reads a constant and a shared variable, each of a file."""
    x = pt.vector("x")
    shared = pytensor.shared(np.arange(20.0), "w")
    rows = scan(lambda h, w: h * w, outputs_info=[x], non_sequences=[shared], n_steps=3)
    return [x], [rows + np.arange(20.0) + 1]


def written(file: Path, graph: Any = None) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Save a graph, and return the table of its file, and all members but that."""
    save(small_graph() if graph is None else graph, file)
    members = members_of(file.read_bytes(), 100_000, "many")
    return json.loads(members.pop("graph.json")), members


def forged(file: Path, change: Change, graph: Any = None) -> None:
    """Save a graph, and change its file."""
    document, members = written(file, graph)
    change(document, members)
    put_together(file, document, members)


def put_together(file: Path, document: Any, members: dict[str, bytes]) -> None:
    """Write a file of a table and the files of arrays."""
    file.write_bytes(packed({"graph.json": json.dumps(document).encode(), **members}))


def part(document: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the first part of a class, or the first inner graph."""
    found = (row for row in document["parts"] if row.get("class", "graph") == name)
    made: dict[str, Any] = next(found)
    return made


PLAIN: tuple[Any, ...] = (
    *(0, 1, -1, 2**40, 2**70, None, "x", [], {}, 0.5, [[]], "tensor.Elemwise", True, -0.0),
    *({"op": 0}, {"type": 0}, {"graph": 3}, {"file": 0}, {"slice": [0, 1, 2]}, {"list": []}),
    *({"named": "ValueError"}, {"float": "7ff8000000000001"}, {"dict": [[0, 1]]}),
)


def change_at_random(document: Any, draw: random.Random) -> None:
    """Put another value into a table, or leave one out, or write one twice."""
    table: Any = document
    while True:
        keys = list(table) if isinstance(table, dict) else list(range(len(table)))
        if not keys:
            return
        key = draw.choice(keys)
        if not isinstance(table[key], list | dict) or draw.random() < 0.3:
            break
        table = table[key]
    match draw.randint(0, 3):
        case 0:
            del table[key]
        case 1 if isinstance(table, list):
            table.append(table[key])
        case _:
            table[key] = deepcopy(draw.choice(PLAIN))
