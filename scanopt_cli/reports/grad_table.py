"""What every format reports about a derivative, in words and as rows of one table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from scanopt_cli.analysis.statistics import Statistics
from scanopt_cli.autodiff.derivative import Derivative, OrderReport
from scanopt_cli.autodiff.provenance.pedigree import Pedigree, ScanRecord
from scanopt_cli.autodiff.stages import Stage
from scanopt_cli.text import UNNAMED

_HEADINGS = (
    "strategy",
    "order",
    "stage",
    "loops",
    "mit-mots",
    "states",
    "traces",
    "nodes outside",
    "nodes inside",
)


LABELS = {
    Stage.RAW: "as built",
    Stage.PYTENSOR: "compiled",
    Stage.SCANOPT: "scanopt",
    Stage.BOTH: "scanopt, compiled",
}
_LEGEND = {
    Stage.PYTENSOR: "after PyTensor's rewrites alone",
    Stage.SCANOPT: "after `scanopt optimize -p grad`",
    Stage.BOTH: "after `scanopt optimize -p grad`, then PyTensor's rewrites",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One graph of the table: its strategy (none for order 0), order, stage and counts."""

    strategy: str
    order: int
    stage: Stage
    counts: tuple[str, ...]
    buffers: str

    @property
    def graph(self) -> str:
        """The graph's strategy and order."""
        return f"{self.strategy} {self.order}".strip()


def headings(derivative: Derivative) -> tuple[str, ...]:
    """Return the headings of the columns before that of the buffers."""
    every = (order.statistics for one in derivative.every for order in one.orders)
    others = any(counted.loops for counted in every)
    return tuple("Scans" if name == "loops" and not others else name for name in _HEADINGS)


def title(derivative: Derivative) -> str:
    """Return one line: what was differentiated, how often, and by which inputs."""
    order = derivative.orders[-1].order
    what = "Hessian" if derivative.full else f"derivative of order {order}"
    return f"{what} of {derivative.output} by {', '.join(derivative.wrt)}"


def strategies(derivative: Derivative) -> list[str]:
    """Return a line for each strategy, with the reason for its choice."""
    return [f"strategy {one.strategy}: {one.reason}" for one in derivative.every]


def checks(derivative: Derivative) -> list[str]:
    """Return a line for each strategy whose values were checked, or should have been."""
    return [f"{one.strategy}: {one.check}" for one in derivative.every if one.check is not None]


def legend(derivative: Derivative) -> list[str]:
    """Return a line for each stage in the table except ``raw``, and one for unnamed sizes."""
    table = rows(derivative)
    shown = dict.fromkeys(row.stage for row in table)
    lines = [f"{LABELS[stage]}: {_LEGEND[stage]}" for stage in shown if stage in _LEGEND]
    return [*lines, UNNAMED] if any("?" in row.buffers for row in table) else lines


def rows(derivative: Derivative) -> list[Row]:
    """Return the rows: the original graph once, then every order of every strategy."""
    found = list(_rows("", derivative.orders[0]))
    for one in derivative.every:
        for report in one.orders[1:]:
            found += _rows(one.strategy, report)
    return found


def _rows(strategy: str, report: OrderReport) -> Iterator[Row]:
    yield _row(strategy, report.order, Stage.RAW, report.statistics)
    for staged in report.stages:
        yield _row(strategy, report.order, staged.stage, staged.statistics)


def _row(strategy: str, order: int, stage: Stage, counted: Statistics) -> Row:
    loops = counted.scans + counted.loops
    states = counted.mit_sot + counted.sit_sot + counted.untraced + counted.states
    counts = (loops, counted.mit_mot, states, counted.nit_sot + counted.traced)
    nodes = (counted.outer_nodes, counted.inner_nodes)
    return Row(
        strategy=strategy,
        order=order,
        stage=stage,
        counts=tuple(map(str, (*counts, *nodes))),
        buffers=counted.buffers,
    )


def origin_in_words(record: ScanRecord) -> str:
    """Return what is known about a Scan's origin, in words."""
    way = "unknown direction" if record.direction == "unknown" else record.direction.value
    parts = [way]
    if record.tangents_of is not None:
        parts.append(f"{record.tangents_of} with its tangents")
    if record.parent is not None:
        parts.append(f"pullback of {record.parent}")
    elif record.generation and record.tangents_of is None:
        parts.append(f"pullback, generation {record.generation}")
    if record.reason is not None:
        parts.append(f"parent unknown: {record.reason}")
    if record.path:
        parts.append(f"in {'/'.join(record.path)}")
    if record.depends_on:
        parts.append(f"depends on {', '.join(record.depends_on)}")
    if record.reads_inputs:
        parts.append(f"reads {', '.join(record.reads_inputs)}")
    return "; ".join(parts)


def children(pedigree: Pedigree) -> Mapping[str | None, Sequence[ScanRecord]]:
    """Return the children of each Scan: its pullbacks in the same graph, and the Scans in its body.

    Scans are identified by their full names; those under ``None`` have no parent.
    """
    names = {record.full_name for record in pedigree.scans}
    found: dict[str | None, list[ScanRecord]] = {}
    for record in pedigree.scans:
        beside = "/".join((*record.path, record.parent or ""))
        around = ("/".join(record.path[:depth]) for depth in range(len(record.path), 0, -1))
        above = next((name for name in (beside, *around) if name in names), None)
        found.setdefault(above, []).append(record)
    return found
