"""Graph files that the tests of commands share."""

from __future__ import annotations

from pathlib import Path

import pytensor.tensor as pt
import pytest

from scanopt_cli.ir.graph import Graph
from scanopt_cli.serialization.saving import save
from support.graph_building import graph_of, power, scan


def _wasteful() -> Graph:
    x, n, s = pt.dscalar("x"), pt.lscalar("n"), pt.dvector("s")
    ys, _ = scan(
        lambda a, b, y: [y * a + b, y + 1],
        sequences=[s + 1, 1 + s],
        outputs_info=[x, None],
        n_steps=n,
        name="wasteful",
    )
    return graph_of(ys[-1])


def _clean() -> Graph:
    _, xs = power()
    return graph_of(xs)


def _off() -> Graph:
    """Like the wasteful graph, and off by a little."""
    graph = _wasteful()
    return graph_of(graph.outputs[0] + 1e-3)


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with graph files: clean, wasteful, off, power, grad, hessian."""
    folder = tmp_path_factory.mktemp("graphs")
    x, xs = power()
    graphs = {
        "clean": _clean(),
        "wasteful": _wasteful(),
        "off": _off(),
        "power": graph_of(xs[-1]),
        "grad": graph_of(pt.grad(xs[-1], x)),
        "hessian": graph_of(pt.grad(pt.grad(xs[-1], x), x)),
    }
    for name, graph in graphs.items():
        save(graph, folder / f"{name}.pkl")
    return folder
