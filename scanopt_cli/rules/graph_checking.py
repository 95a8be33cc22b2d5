"""`check`: what may be wrong or wasteful in the loops of a graph."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from scanopt_cli.analysis.provenance.locating import locate
from scanopt_cli.ir.folding import bounded_folding
from scanopt_cli.ir.graph import GraphLike, as_graph
from scanopt_cli.pipeline.grammar import parse
from scanopt_cli.pipeline.registry import registry
from scanopt_cli.pipeline.runner import run_pipeline
from scanopt_cli.presentation import Presented
from scanopt_cli.rules.check_context import CheckContext
from scanopt_cli.rules.rule_contract import Finding, Findings, Fix
from scanopt_cli.rules.rule_registry import selected

# The items of a pipeline; options, which may have commas, stand in braces.
_ITEMS = re.compile(r"[\w-]+(?:\{[^{}]*\})?")

_MERGED_ANYWAY = "merge-equal"
"""What PyTensor does to equal nodes, loops among them, whenever it compiles a graph."""

type Baseline = Mapping[str, int]
"""How many findings of each key are known."""


@dataclass(frozen=True, slots=True, repr=False)
class CheckResult(Presented):
    """What `check` found.

    Attributes
    ----------
    findings
        What is wrong or wasteful, in the order of the rules.
    known
        How many findings are left out, since the baseline has them.
    suspects
        What may be wrong or wasteful, and is not proved; empty unless it was asked for.
    source
        The name of the graph: the path it was read from, or ``<memory>``.
    """

    findings: tuple[Finding, ...]
    known: int = 0
    suspects: tuple[Finding, ...] = ()
    source: str = field(default="<memory>", metadata={"as_json": False})

    def __post_init__(self) -> None:
        for name in ("findings", "suspects"):
            object.__setattr__(self, name, Findings(getattr(self, name)))

    @property
    def fixes(self) -> str | None:
        """The pipeline that mends what can be mended safely, ``None`` if there is nothing."""
        return _pipeline(finding.fix for finding in self.findings if finding.is_mended_safely)

    @property
    def unsafe_fixes(self) -> str | None:
        """The pipeline that mends all that passes can, and may change values.

        ``None`` if no finding needs it.
        """
        if not any(finding.is_mended_unsafely for finding in self.findings):
            return None
        return _pipeline(finding.fix for finding in self.findings)


def _pipeline(fixes: Iterable[Fix | None]) -> str | None:
    """Return the passes of all ``fixes`` in the order of the registry, those that trim last."""
    items = [item for fix in fixes if fix is not None for item in _ITEMS.findall(fix.passes)]
    places = {name: (cls.trims, place) for place, (name, cls) in enumerate(registry().items())}
    last = (True, len(places))
    distinct = sorted(
        dict.fromkeys(items), key=lambda item: places.get(item.partition("{")[0], last)
    )
    return ",".join(distinct) or None


@bounded_folding()
def check(
    graph: GraphLike,
    *,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    baseline: Baseline | None = None,
    suspects: bool = False,
) -> CheckResult:
    """Look for what is wrong or wasteful in the loops of ``graph``, which stays as it is.

    Parameters
    ----------
    graph
        A loaded graph, the path of its file, a FunctionGraph or an ``(inputs, outputs)`` pair.
    select, ignore
        Codes of rules, or what they begin with: ``P`` for all that waste time or memory. All rules
        by default, but those for some users alone (J001).
    baseline
        Findings that are known, by their keys.
    suspects
        Whether to return as well what may be so, and is not proved.

    Raises
    ------
    ScanoptError
        If ``graph`` is no graph, its file cannot be loaded, or a code is of no rule.
    """
    chosen = selected(tuple(select), tuple(ignore))
    work = as_graph(graph)
    locate(work.fgraph)
    run_pipeline(work.fgraph, parse(_MERGED_ANYWAY))
    context = CheckContext(work.fgraph)
    found = [finding for rule in chosen for finding in rule().find(context)]
    findings = left_out(found, baseline or {}, lambda finding: finding.key)
    doubts = (
        [finding for rule in chosen for finding in rule().suspects(context)] if suspects else ()
    )
    known = len(found) - len(findings)
    return CheckResult(tuple(findings), known, tuple(doubts), work.source)


def left_out[K](
    found: Iterable[Finding], known: Mapping[K, int], key: Callable[[Finding], K]
) -> list[Finding]:
    """Return the findings that are not known, by what tells them apart and how many are."""
    left = Counter(known)
    findings = []
    for finding in found:
        if left[key(finding)] > 0:
            left[key(finding)] -= 1
        else:
            findings.append(finding)
    return findings
