"""What `optimize` did, for a person at a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from scanopt_cli.analysis.statistics import COUNTS, Statistics
from scanopt_cli.pipeline.optimizing import OptimizeResult
from scanopt_cli.pipeline.runner import PassRun
from scanopt_cli.remarks import Remark, RemarkKind
from scanopt_cli.reports.remark_text import grouped, hint_of, text_of
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
    "loops": "TracedLoops",
    "states": "states",
    "traced": "traced values",
    "constants": "constants",
    "outer_nodes": "nodes outside",
    "inner_nodes": "nodes inside",
    "buffers": "loop-buffer elements",
}
"""The label of each field of `Statistics`."""

_SIGNS = {
    RemarkKind.PASSED: ("~", "green"),
    RemarkKind.MISSED: ("=", "yellow"),
    RemarkKind.ANALYSIS: ("?", "dim"),
}


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


def remarks(runs: Iterable[PassRun], *, verbose: bool = False) -> RenderableType | None:
    """Return what each pass did, and what it did not do, and why.

    With ``verbose``, also what the passes found out. ``None`` if there is nothing to show.
    """
    parts: list[RenderableType] = []
    for run in runs:
        texts = [_remark(remark) for remark in grouped(shown(run, verbose=verbose))]
        if texts:
            parts.append(Text(run.name, style="bold"))
            parts.extend(Padding(text, (0, 0, 0, 2), expand=False) for text in texts)
    return Group(*parts) if parts else None


def shown(run: PassRun, *, verbose: bool) -> list[Remark]:
    """Return the remarks of a pass that are shown."""
    return [r for r in run.remarks if verbose or r.kind is not RemarkKind.ANALYSIS]


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
    hint = hint_of(remark)
    return Text.assemble(
        (sign, style),
        " ",
        (printable(remark.scan), "cyan"),
        ": ",
        printable(text_of(remark)),
        ("" if hint is None else f" ({hint})", "dim"),
    )
