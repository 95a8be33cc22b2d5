"""How loops are described for a person."""

from __future__ import annotations

from dataclasses import replace

import pytest

from graph_building import graph_of, power
from printing import printed
from scanopt_cli.analysis.inspection import Inspection, ScanReport, inspect_graph
from scanopt_cli.reports.inspect_report import inspect_report


def shown(scan: ScanReport, width: int = 200) -> str:
    return printed(inspect_report(Inspection((scan,))), width)


@pytest.mark.parametrize(("count", "steps", "axes"), [(1, "step", "axis"), (2, "steps", "axes")])
def test_one_step_and_one_axis_are_no_plural(count: int, steps: str, axes: str) -> None:
    (scan,) = inspect_graph(graph_of(power()[1]).fgraph).scans
    slots = tuple(replace(slot, rows=str(count)) for slot in scan.slots)
    scan = replace(scan, steps=str(count), batch_ndim=count, truncate_gradient=count, slots=slots)
    title = shown(scan).splitlines()[0].rstrip()
    assert f": {count} {steps}, " in title
    assert f"batched over {count} {axes}, " in title
    assert title.endswith(f"gradient truncated after {count} {steps}")
    assert f"{count} row{'' if count == 1 else 's'} " in shown(scan, 60)
