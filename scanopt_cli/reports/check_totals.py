"""What `check` found in several graphs, summed up: the lines that close a report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scanopt_cli.reports.document import Block, Column, Paragraph, Table
from scanopt_cli.text import plural

if TYPE_CHECKING:
    from scanopt_cli.reports.check_report import Mending
    from scanopt_cli.rules.graph_checking import CheckResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Counts of what was found in graphs; the sum of tallies is that of all their graphs.

    Attributes
    ----------
    graphs, found_in
        How many graphs there are, and how many of them have a finding.
    findings, known, suspects
        How many findings there are, how many are left out since the baseline has them, and how much
        is not proved.
    safe, unsafe
        How many findings passes mend that keep all values, and how many others.
    mended
        How many findings were mended, ``None`` if that was not asked for.
    counts_unsafe, is_written
        As for `Mending`.
    fixes, all_fixes
        The pipelines that mend what can be mended safely in one of the graphs, and those that mend
        all that can be.
    rules
        How many findings each rule has, by its code and its name.
    """

    graphs: int = 0
    found_in: int = 0
    findings: int = 0
    known: int = 0
    suspects: int = 0
    safe: int = 0
    unsafe: int = 0
    mended: int | None = None
    counts_unsafe: bool = False
    is_written: bool = False
    fixes: frozenset[str] = frozenset()
    all_fixes: frozenset[str] = frozenset()
    rules: Mapping[tuple[str, str], int] = field(default_factory=dict)

    @classmethod
    def of(cls, result: CheckResult, mending: Mending | None = None) -> Tally:
        """Return the tally of one graph, in which ``mending`` was asked to mend."""
        found, mended = result.findings, None if mending is None else mending.mended
        fixes = _present([result.fixes])
        return cls(
            graphs=1,
            found_in=int(bool(found)),
            findings=len(found),
            known=result.known,
            suspects=len(result.suspects),
            safe=sum(finding.is_mended_safely for finding in found),
            unsafe=sum(finding.is_mended_unsafely for finding in found),
            mended=None if mended is None else mended.count,
            counts_unsafe=mending is not None and mending.unsafe,
            is_written=mending is not None and mending.is_written,
            fixes=fixes,
            all_fixes=_present([result.unsafe_fixes]) or fixes,
            rules=Counter((finding.code, finding.name) for finding in found),
        )

    def __add__(self, other: Tally) -> Tally:
        mended = [each.mended for each in (self, other) if each.mended is not None]
        return Tally(
            graphs=self.graphs + other.graphs,
            found_in=self.found_in + other.found_in,
            findings=self.findings + other.findings,
            known=self.known + other.known,
            suspects=self.suspects + other.suspects,
            safe=self.safe + other.safe,
            unsafe=self.unsafe + other.unsafe,
            mended=sum(mended) if mended else None,
            counts_unsafe=self.counts_unsafe or other.counts_unsafe,
            is_written=self.is_written or other.is_written,
            fixes=self.fixes | other.fixes,
            all_fixes=self.all_fixes | other.all_fixes,
            rules=Counter(self.rules) + Counter(other.rules),
        )


def _present(pipelines: Iterable[str | None]) -> frozenset[str]:
    return frozenset(pipeline for pipeline in pipelines if pipeline)


def closing(tally: Tally) -> Iterator[str]:
    """Yield the line of counts, and what mends what was found."""
    yield total(tally)
    is_mended = tally.mended is not None
    safe = 0 if is_mended else tally.safe  # what --fix could mend is mended
    unsafe = tally.unsafe
    if unsafe and (tally.counts_unsafe and not is_mended):
        count = plural(safe + unsafe, "finding")
        marks = "[*] or [!]" if safe else "[!]"
        yield (
            f"{count} marked {marks} can be mended by --fix --unsafe-fixes -o OUT"
            f"{_passes(tally.all_fixes)}; [!] may change values"
        )
        return
    if safe:
        yield (
            f"{plural(safe, 'finding')} marked [*] can be mended by --fix -o OUT"
            f"{_passes(tally.fixes)}"
        )
    if unsafe and not tally.counts_unsafe:
        more = f"{unsafe} more" if safe else plural(unsafe, "finding")
        yield f"{more} marked [!] can be mended by --unsafe-fixes, which may change values"


def _passes(pipelines: frozenset[str]) -> str:
    return f", which runs {next(iter(pipelines))}" if len(pipelines) == 1 else ""


def total(tally: Tally) -> str:
    """Return ``Found 3 findings in 2 of 5 graphs``."""
    count, mended = tally.findings, tally.mended
    beside = f", beside {plural(tally.known, 'known one')}" if tally.known else ""
    if mended is not None:
        beside += f"; {mended} {_were(mended, is_written=tally.is_written)} mended"
    if tally.suspects:
        more = " more" if count else ""
        beside += f"; not sure of {tally.suspects}{more}"
    in_graphs = plural(tally.graphs, "graph")
    if not count:
        return f"nothing {'found' if mended is None else 'left'} in {in_graphs}{beside}"
    found = plural(count, "finding")
    found = f"Found {found}" if mended is None else f"{found} left"
    return f"{found} in {tally.found_in} of {in_graphs}{beside}"


def _were(count: int, *, is_written: bool) -> str:
    return ("was" if count == 1 else "were") if is_written else "would be"


def statistics(tally: Tally) -> Iterator[Block]:
    """Yield how many findings each rule has."""
    counts = Counter(tally.rules)
    rows = [(str(count), code, name) for (code, name), count in counts.most_common()]
    if rows:
        yield Table((Column("findings", is_number=True), Column("code"), Column("rule")), rows)
        yield Paragraph()
    yield Paragraph(total(tally))
