"""What `optimize` did, for a person at a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from scanopt_cli.analysis.statistics import COUNTS, Statistics
from scanopt_cli.pipeline.contract import Remark, RemarkKind
from scanopt_cli.pipeline.optimizing import OptimizeResult
from scanopt_cli.pipeline.runner import PassRun
from scanopt_cli.text import UNNAMED, printable

LABELS = {
    "scans": "Scans",
    "mit_mot": "mit_mot states",
    "mit_sot": "mit_sot states",
    "sit_sot": "sit_sot states",
    "nit_sot": "nit_sot outputs",
    "untraced": "untraced states",
    "seqs": "sequences",
    "non_seqs": "non-sequences",
    "outer_nodes": "nodes outside",
    "inner_nodes": "nodes inside",
    "buffers": "loop-buffer elements",
}
"""The label of each field of `Statistics`."""

_NUMBER = re.compile(r"#\d+(?=/|$)")
_SIGNS = {RemarkKind.CHANGED: ("~", "green"), RemarkKind.KEPT: ("=", "yellow")}


def heading(source: str, text: str) -> Text:
    """Return the heading of the report on one file."""
    return Text.assemble((printable(source), "bold"), ": ", text)


def verdict(result: OptimizeResult) -> str:
    """Return one line that says whether anything changed, and by which passes."""
    if not result.changed:
        return f"nothing to clean up ({result.pipeline})"
    names = list(dict.fromkeys(run.name for run in result.passes if run.changed))
    return f"changed by {', '.join(names)}"


def statistics_table(before: Statistics, after: Statistics) -> Table:
    """Return the counts before and after, with the change."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    for title in ("before", "after", "change"):
        table.add_column(title, justify="right", overflow="fold")
    for name in COUNTS:
        old, new = getattr(before, name), getattr(after, name)
        if old or new:
            table.add_row(LABELS[name], str(old), str(new), _change(new - old))
    return table


def buffers(before: Statistics, after: Statistics) -> Text:
    """Return the sizes of the loop buffers, which are formulas, on a line of their own."""
    sizes = dict.fromkeys((printable(before.buffers), printable(after.buffers)))
    text = f"{LABELS['buffers']}: {' → '.join(sizes)}\n"
    return Text(f"{text}{UNNAMED}\n" if "?" in text else text)


def remarks(runs: Iterable[PassRun]) -> RenderableType:
    """Return what each pass changed and what it kept, and why."""
    parts: list[RenderableType] = []
    for run in runs:
        if run.remarks:
            parts.append(Text(run.name, style="bold"))
            texts = map(_remark, told_once(run.remarks))
            parts.extend(Padding(text, (0, 0, 0, 2), expand=False) for text in texts)
    return Group(*parts)


def told_once(remarks: Iterable[Remark]) -> list[Remark]:
    """Return ``remarks``, with equal ones about Scans of one name (but its number) merged."""
    groups: dict[object, list[Remark]] = {}
    for remark in remarks:
        key = remark.kind, remark.message, _NUMBER.sub("", remark.scan)
        groups.setdefault(key, []).append(remark)
    return [
        first if not others else replace(first, scan=f"{first.scan} and {len(others)} more")
        for first, *others in groups.values()
    ]


def timings(runs: Sequence[PassRun]) -> Table:
    """Return the wall time of each pass over all its rounds, in milliseconds, and its rewrites."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("pass")
    table.add_column("ms", justify="right")
    table.add_column("share", justify="right")
    table.add_column("rewrites", justify="right")
    total = sum(run.seconds for run in runs) or 1.0
    for run in runs:
        share = f"{100 * run.seconds / total:.0f} %"
        table.add_row(run.name, f"{1000 * run.seconds:.1f}", share, str(run.rewrites))
    return table


def _change(change: int) -> Text:
    if not change:
        return Text("")
    return Text(f"{change:+d}", style="green" if change < 0 else "red")


def _remark(remark: Remark) -> Text:
    sign, style = _SIGNS[remark.kind]
    return Text.assemble(
        (sign, style), " ", (printable(remark.scan), "cyan"), ": ", printable(remark.message)
    )
