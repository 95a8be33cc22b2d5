"""One graph of many kinds of nodes, written so that any process builds the same one from it.

Every dtype is said, for ``floatX`` chooses those that are not. Run as a program it writes the graph
to the files that it is given, or prints the digests of what it finds there: see `test_processes`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytensor.tensor as pt
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Variable
from pytensor.graph.replace import vectorize_graph
from pytensor.scan.utils import until
from pytensor.tensor.random.type import random_generator_type

from scanopt_cli import digest
from scanopt_cli.serialization.loading import load
from scanopt_cli.serialization.saving import save
from support.graph_building import scan


def build() -> tuple[list[Variable], list[Variable]]:
    """Return the inputs and the outputs of the graph."""
    x, v, m = pt.dscalar("x"), pt.dvector("v"), pt.dmatrix("m")
    n, rng = pt.lscalar("n"), random_generator_type("rng")
    outputs = [*_loops(x, v, m, n, rng), *_other_nodes(x, v, m, n)]
    return [x, v, m, n, rng], outputs


def _loops(x: Any, v: Any, m: Any, n: Any, rng: Any) -> list[Variable]:
    def element(a, y):
        return pt.tanh(y * a + _real(0.5))

    def row(r, y):
        return scan(element, sequences=[r], outputs_info=[y], name="elements")[-1]

    def until_too_large(a, b, bound):
        return a + b * _real(1.5), until(b > bound)

    def walk(rng, y):
        rng, noise = pt.random.normal(
            _real(0.0), _real(1.0), rng=rng, return_next_rng=True, dtype="float64"
        )
        return [rng, y + noise]

    rows = scan(row, sequences=[m], outputs_info=[x], name="rows")
    start = {"initial": v[:2], "taps": [-2, -1]}
    stopped = scan(until_too_large, outputs_info=[start], non_sequences=[x], n_steps=n)
    last_rng, walked = scan(walk, outputs_info=[rng, x], n_steps=n)
    one = scan(lambda y, f: y * f, outputs_info=[v], non_sequences=[x], n_steps=3)[-1]
    return [
        rows,
        pt.grad(rows[-1], x),
        stopped[-1],
        last_rng,
        walked,
        vectorize_graph(one, {v: m}),
    ]


def _other_nodes(x: Any, v: Any, m: Any, n: Any) -> list[Variable]:
    layer = OpFromGraph([v, m], [m @ v, v.sum()], inline=True, name="layer")
    table = pt.constant(np.arange(400, dtype="float64").reshape(20, 20), name="table")
    return [
        *layer(v, m),
        table @ table,
        m[1:, ::-1],
        m[pt.arange(n), 0],
        v[v > _real(0.0)],
        pt.set_subtensor(v[:2], np.array([1.0, -0.0])),
        pt.linalg.inv(m),
        pt.linalg.cholesky(m),
        pt.special.softmax(v),
        pt.switch(x > _real(0.0), x, _real(np.nan)),
        pt.concatenate([v, pt.alloc(x, n)]),
        pt.sort(v).astype("float32"),
        m.argmax(axis=0),
        m.reshape((-1,)).prod(),
    ]


def _real(value: float) -> np.ndarray:
    return np.asarray(value, dtype="float64")


def digests(graph: Any) -> list[str]:
    """Return the digests of a graph by each notion of sameness."""
    return [digest(graph), digest(graph, names=True), digest(graph, gradients=True)]


def main(command: str, saved: Path, cloudpickled: Path) -> None:
    """Write the graph to two files, or print the digests of these and of the graph built anew."""
    if command == "write":
        save(build(), saved)
        cloudpickled.write_bytes(cloudpickle.dumps(build()))
    else:
        found = {
            "built": digests(build()),
            "saved": digests(load(saved)),
            "cloudpickled": digests(load(cloudpickled)),
        }
        print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
