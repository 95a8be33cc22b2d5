"""A loop and its gradient to compile where results are kept, and what is kept of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.compile.mode import Mode, get_mode

import scanopt_cli as so
from scanopt_cli.store import Store
from support.compiled_ways import VM
from support.graph_building import scan

NUMBA = get_mode("NUMBA")


MIB = 1 << 20


type Graph = tuple[list[Any], list[Any]]


def slope(factor: float = 0.9, name: str = "x") -> Graph:
    x, start = pt.vector(name), pt.scalar("start")
    ys = scan(lambda v, y: pt.tanh(y * factor + v), sequences=[x], outputs_info=[start])
    value = (ys**2).sum()
    return [x, start], [value, *pytensor.grad(value, [x, start])]


ARGUMENTS = np.linspace(-1, 1, 7), 0.3


def recorded(graph: Graph, mode: Mode = VM, *, cache: bool = True, **how: Any) -> Any:
    """Return a function and the record of its compilation."""
    with so.enabled(cache=cache) as done:
        return pytensor.function(*graph, mode=mode, **how), done


def compiled(graph: Graph, mode: Mode = VM, *, cache: bool = True, **how: Any) -> Any:
    return recorded(graph, mode, cache=cache, **how)[0]


def count(store: Store, kind: str = "graph") -> int:
    if not store.directory.exists():
        return 0
    return sum(path.name.startswith(kind) for path in store.directory.iterdir())
