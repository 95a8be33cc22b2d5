"""The inputs of steps that `unroll-small` unrolls, and the pass itself."""

from __future__ import annotations

import numpy as np
import pytensor.tensor as pt

from scanopt_cli.ir.graph import Graph
from support.graph_building import optimized

a = pt.dmatrix("a", shape=(3, 3))
b = pt.dmatrix("b", shape=(3, 3))
h = pt.dvector("h", shape=(3,))
rows = pt.dmatrix("rows", shape=(None, 3))
n = pt.lscalar("n")
wide = pt.dvector("wide", shape=(40,))
weights = pt.dmatrix("weights", shape=(40, 3))
unknown = pt.dvector("unknown")

rng = np.random.default_rng(0)
VALUES = {
    "a": rng.normal(size=(3, 3)) / 3,
    "b": rng.normal(size=(3, 3)) / 3,
    "h": rng.normal(size=3),
    "rows": rng.normal(size=(5, 3)),
    "n": 4,
    "wide": rng.normal(size=40),
    "weights": rng.normal(size=(40, 3)) / 40,
    "unknown": rng.normal(size=3),
}


def unrolled(graph: Graph, options: str = "{always=true}") -> tuple[Graph, list[str]]:
    """Return a graph after the pass, whether it pays or not, and its remarks.

    The same again changes nothing.
    """
    pipeline = f"scan-to-loop,unroll-small{options}"
    work, remarks = optimized(graph, pipeline)
    _, more = optimized(work, f"unroll-small{options}")
    assert not any(remark.startswith("passed") for remark in more)
    return work, remarks
