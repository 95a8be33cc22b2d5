"""Loops that several tests of derivatives differentiate, and their inputs."""

from __future__ import annotations

from typing import Any

import pytensor.tensor as pt
from pytensor.gradient import grad_clip

from scanopt_cli.ir.graph import Graph
from support.graph_building import graph_of, scan

x, a, b = pt.dscalars("x", "a", "b")
y, s = pt.dvectors("y", "s")
W = pt.dmatrix("W")
n = pt.lscalar("n")


def garch() -> Any:
    spread = scan(
        lambda r, h, w, c, d: w + c * r**2 + d * h,
        sequences=[pt.constant([0.4, -0.2, 0.7, 0.1], dtype="float64")],
        outputs_info=[pt.constant(1.0, dtype="float64")],
        non_sequences=[x, a, b],
        name="garch",
    )
    return (-0.5 * pt.log(spread) - 0.3 / (2 * spread)).sum()


def nested() -> Any:
    def outer(h: Any, factor: Any) -> Any:
        return scan(
            lambda u, f: pt.sin(u) * f,
            outputs_info=[h],
            non_sequences=[factor],
            n_steps=2,
            name="inner",
        )[-1]

    return scan(outer, outputs_info=[x], non_sequences=[a], n_steps=n, name="outer")[-1]


def clipped() -> Graph:
    return graph_of(
        scan(
            lambda h: scan(
                lambda u: grad_clip(u, -1, 1) * 2, outputs_info=[h], n_steps=2, name="inner"
            )[-1],
            outputs_info=[x],
            n_steps=3,
            name="outer",
        )[-1]
    )
