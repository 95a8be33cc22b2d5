"""Gradients of loops to compile, and what is in a compiled function."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.compile.executor import Function
from pytensor.graph.basic import Variable

from scanopt_cli.analysis.statistics import Statistics, statistics
from support.graph_building import scan

ARGUMENTS = (np.array([0.3, -0.2, 0.5]), 0.7, 0.2)


def growth() -> tuple[list[Any], list[Variable]]:
    """A loop with a trace, and its gradients: two Scans, one mit_mot."""
    data, start, rate = pt.dvector("data"), pt.dscalar("start"), pt.dscalar("rate")
    trace = scan(
        lambda row, state, rate: state * (1 - rate) + pt.tanh(row * state),
        sequences=[data],
        outputs_info=[start],
        non_sequences=[rate],
    )
    loss = (trace**2).sum()
    return [data, start, rate], [loss, *pt.grad(loss, [start, rate])]


def counts(function: Function) -> Statistics:
    """Count what is in a compiled graph."""
    return statistics(function.maker.fgraph)
