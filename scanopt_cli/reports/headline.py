"""What `optimize` did in one sentence: ``5 Scans → 2: 3 loops merged; buffers 11 MB → 2 MB``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from scanopt_cli.analysis.statistics import Statistics
from scanopt_cli.pipeline.grammar import described
from scanopt_cli.pipeline.optimizing import OptimizeResult
from scanopt_cli.remarks import Code, Remark, RemarkKind
from scanopt_cli.text import plural, size_text


class _Counted(Enum):
    """What of a remark is counted: its loops, each once, its slots, or how often it was so."""

    LOOPS = auto()
    SLOTS = auto()
    TIMES = auto()


@dataclass(frozen=True, slots=True)
class _Deed:
    """What was done to how many of something: ``2 loops``, ``merged``."""

    noun: str
    text: str
    counted: _Counted = _Counted.LOOPS

    def worded(self, count: int) -> str:
        return f"{plural(count, self.noun)} {self.text}"


_EQUAL = _Deed("loop", "merged with equal ones", _Counted.TIMES)
_MERGED = _Deed("loop", "merged")
_WRITTEN_OUT = _Deed("loop", "written out")
_FOLDED = _Deed("loop", "over constants computed")
_NO_LOOP = _Deed("loop", "computed on whole arrays")
_REPLACED = _Deed("mit_mot", "turned into states", _Counted.SLOTS)
_FEWER_STEPS = _Deed("loop", "cut to the steps that are read")
_MOVED = _Deed("loop", "with less to compute in a step")
_UNUSED = _Deed("unused slot", "removed", _Counted.SLOTS)
_TRIMMED = _Deed("buffer", "shortened", _Counted.SLOTS)
_DEEDS = {
    Code.LOOPS_MERGED: _EQUAL,
    Code.SCANS_MERGED: _MERGED,
    Code.STEPS_WRITTEN_OUT: _WRITTEN_OUT,
    Code.LOOP_NOT_NEEDED: _NO_LOOP,
    Code.MIT_MOT_REPLACED: _REPLACED,
    Code.STEPS_CUT: _FEWER_STEPS,
    Code.FIRST_STEPS_RUN: _FEWER_STEPS,
    Code.LAST_STEPS_CUT: _FEWER_STEPS,
    Code.INVARIANTS_MOVED: _MOVED,
    Code.SEQUENCES_COMPUTED: _MOVED,
    Code.PRODUCT_MOVED: _MOVED,
    Code.ROWS_COMPUTED: _MOVED,
    Code.SUM_MOVED: _MOVED,
    Code.MATRIX_FACTORED: _MOVED,
    Code.LOOP_FOLDED: _FOLDED,
    Code.SLOT_REMOVED: _UNUSED,
    Code.ZEROS_REMOVED: _UNUSED,
    Code.BUFFER_SHORTENED: _TRIMMED,
    Code.REDUCTION_CARRIED: _TRIMMED,
    Code.STATE_SHORTENED: _TRIMMED,
    Code.TRACED_CARRIED: _TRIMMED,
}
"""What is told of a rewrite, most important first."""
_FORMS = (Code.SCAN_TURNED, Code.LOOP_TURNED)
_TRIVIAL = frozenset(
    {
        *(Code.BRANCHES_COPIED, Code.BUFFERS_COPIED, Code.CONDITION_MARKED),
        *(Code.OUTPUTS_COPIED, Code.READERS_COPIED),
        *(Code.SEQUENCE_CUT, Code.SUM_REGROUPED, Code.UNIT_LENGTH_DECLARED),
        *(Code.CONSTANTS_MERGED, Code.NODES_MERGED, Code.READS_NORMALIZED, Code.SIMPLIFIED),
    }
)
_MOST_DEEDS = 3
LONGEST_SIZE = 20
"""Longer formulas are not in a sentence, nor in a table."""


def headline(result: OptimizeResult, findings: int) -> str:
    """Return what `optimize` did to a graph in one sentence, and how many findings are left."""
    left = [f"{plural(findings, 'finding')} left"] if findings else []
    if not result.changed:
        nothing = f"nothing to clean up ({described(result.pipeline)})"
        loops = [] if result.before.has_loops else ["no loop in this graph"]
        return "; ".join((*loops, nothing, *left))
    before, after = result.before, result.after
    done = ", ".join(_deeds(r for run in result.passes for r in run.remarks))
    counts = from_to(before, after)
    parts = [f"{counts}: {done}" if done else counts]
    nodes = [s.outer_nodes + s.inner_nodes for s in (before, after)]
    if not done:
        parts.append(f"nodes {nodes[0]} → {nodes[1]}")
    sizes = [size_text(s.buffer_bytes) for s in (before, after)]
    if sizes[0] != sizes[1] and max(map(len, sizes)) <= LONGEST_SIZE:
        parts.append(f"buffers {arrow(sizes)}")
    return "; ".join((*parts, *left))


def arrow(sizes: Sequence[str]) -> str:
    """Return ``8*n → 16 bytes`` for two sizes, with the unit once if they share it."""
    unit = " bytes"
    first = sizes[0].removesuffix(unit) if sizes[-1].endswith(unit) else sizes[0]
    return " → ".join((first, *sizes[1:])) if len(sizes) > 1 else sizes[0]


def importance(remark: Remark) -> int:
    """Return where a remark stands among others about a loop: smaller numbers come first."""
    if remark.code in _FORMS:
        return 0
    if remark.code in _DEEDS:
        return 1 + list(_DEEDS).index(remark.code)
    return len(_DEEDS) + (2 if remark.code in _TRIVIAL else 1)


def from_to(before: Statistics, after: Statistics) -> str:
    """Return ``5 Scans → 2``, ``1 Scan → 1 TracedLoop``, ``3 Scans`` or ``1 Scan → no loop``."""
    if not (before.has_loops or after.has_loops):
        return "no loop in this graph"
    old = loops_of(before)
    if (before.scans, before.loops) == (after.scans, after.loops):
        return old
    if before.loops == after.loops == 0 and before.scans and after.scans:
        return f"{old} → {after.scans}"
    return f"{old} → {loops_of(after)}"


def loops_of(counts: Statistics) -> str:
    """Return ``2 Scans and 1 TracedLoop``, or ``no loop``."""
    found = ((counts.scans, "Scan"), (counts.loops, "TracedLoop"))
    return " and ".join(plural(n, kind) for n, kind in found if n) or "no loop"


def _deeds(remarks: Iterable[Remark]) -> list[str]:
    """Return the few most important things that were done, with how often they were."""
    counts: Counter[_Deed] = Counter()
    loops: dict[_Deed, set[str]] = {}
    for remark in remarks:
        deed = _DEEDS.get(remark.code)
        if deed is None or remark.kind is not RemarkKind.PASSED:
            continue
        match deed.counted:
            case _Counted.TIMES:
                counts[deed] += remark.count
            case _Counted.SLOTS:
                counts[deed] += len(remark.slots)
            case _Counted.LOOPS:
                others = remark.details.get("others")
                names = others if isinstance(others, tuple) else ()
                loops.setdefault(deed, set()).update((remark.scan, *names))
    counts.update({deed: len(names) for deed, names in loops.items()})
    order = list(dict.fromkeys(_DEEDS.values()))
    return [deed.worded(counts[deed]) for deed in order if counts.get(deed)][:_MOST_DEEDS]
