"""What `optimize` reports of the derivatives of the zoo fits on one screen of 80 columns."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest
from rich.console import Console

from scanopt_cli.ir.graph import as_graph
from scanopt_cli.pipeline.optimizing import optimize
from scanopt_cli.reports.as_rich import show
from scanopt_cli.reports.optimize_report import next_steps, optimize_report
from scanopt_cli.rules.graph_checking import check
from support.zoo.model import Model, outputs_of
from support.zoo.models import MODELS

_QUICK = {("Kalman", 1, "default"), ("Kalman", 1, "grad"), ("LSTM", 1, "default")}


def _cases() -> Iterator[object]:
    for model in MODELS:
        for order in range(1, model.order + 1):
            for preset in ("default", "grad", "loop") if order == 1 else ("default",):
                marks = [] if (model.name, order, preset) in _QUICK else [pytest.mark.deep]
                yield pytest.param(
                    model, order, preset, marks=marks, id=f"{model}-{order}-{preset}"
                )


@pytest.mark.deep
@pytest.mark.parametrize(("model", "order", "preset"), list(_cases()))
def test_a_derivative_fits_on_one_screen(model: Model, order: int, preset: str) -> None:
    graph = as_graph(outputs_of(model, order), source="gradient.pkl")
    result = optimize(graph, preset)
    left = check(result.graph)
    screen = io.StringIO()
    report = optimize_report(graph.source, result, left.findings)
    blocks = [*report, *next_steps(result, left, None)]
    show(Console(file=screen, width=80), blocks, folds=True)
    assert len(screen.getvalue().splitlines()) <= 40
