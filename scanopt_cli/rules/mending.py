"""Mend what `check` found, by the passes that its rules name, and check the result again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from scanopt_cli.ir.graph import Graph, GraphLike, as_graph
from scanopt_cli.pipeline.optimizing import optimize
from scanopt_cli.rules.graph_checking import Baseline, CheckResult, check, left_out
from scanopt_cli.rules.rule_contract import Finding

_MOST_ROUNDS = 4


@dataclass(frozen=True, slots=True)
class Mended:
    """The pipeline that ran, ``None`` if there was nothing to mend, and how many findings went.

    What it mends may uncover more to mend, for which it runs again, with the passes for that.
    """

    passes: str | None
    count: int


@dataclass(frozen=True, slots=True)
class MendResult:
    """What `mend` did.

    Attributes
    ----------
    graph
        The mended graph; a copy of the one that was given, if nothing can be mended.
    mended
        What was done.
    left
        What is found in the mended graph.
    """

    graph: Graph
    mended: Mended
    left: CheckResult


def mend(
    graph: GraphLike,
    *,
    unsafe: bool = False,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    baseline: Baseline | None = None,
    suspects: bool = False,
) -> MendResult:
    """Run the passes that mend the findings of ``graph``, which stays as it is.

    Parameters
    ----------
    graph
        A loaded graph, a FunctionGraph or an ``(inputs, outputs)`` pair.
    unsafe
        Whether passes run that may change values, too.
    select, ignore, baseline, suspects
        As for `check`. What is known stays known, though its loop may be another one now.

    Raises
    ------
    ScanoptError
        As by `check`, or if a pass of another package fails.
    """
    every = check(graph, select=select, ignore=ignore, suspects=suspects)
    unknown = left_out(every.findings, baseline or {}, lambda finding: finding.key)
    known = Counter(map(_subject, every.findings))
    known.subtract(map(_subject, unknown))
    work, after, still = as_graph(graph), every, unknown
    mended: list[Finding] = []
    passes = None
    for _ in range(_MOST_ROUNDS):
        if _passes(still, unsafe=unsafe) is None:
            break
        mended.extend(still)
        passes = _passes(mended, unsafe=unsafe)
        done = optimize(work, passes or ())
        work = done.graph
        if not done.changed:
            break
        after = check(work, select=select, ignore=ignore, suspects=suspects)
        still = left_out(after.findings, known, _subject)
    left = replace(after, findings=tuple(still), known=len(after.findings) - len(still))
    gone = Counter(f.code for f in unknown)
    gone.subtract(Counter(f.code for f in still))
    return MendResult(work, Mended(passes, sum(n for n in gone.values() if n > 0)), left)


def _passes(findings: Sequence[Finding], *, unsafe: bool) -> str | None:
    """Return the pipeline that mends findings, ``None`` if nothing of them can be mended."""
    found = CheckResult(tuple(findings))
    return (found.unsafe_fixes if unsafe else None) or found.fixes


def _subject(finding: Finding) -> tuple[str, ...]:
    """Return what a finding is about; it is the same when something else in the loop changed."""
    return finding.code, finding.loop, *finding.slots
