"""`check`: what may be wrong or wasteful in the loops of a graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scanopt_cli.analysis.provenance.locating import locate
from scanopt_cli.ir.folding import bounded_folding
from scanopt_cli.ir.graph import GraphLike, as_graph
from scanopt_cli.pipeline.grammar import parse
from scanopt_cli.pipeline.registry import registry
from scanopt_cli.pipeline.runner import run_pipeline
from scanopt_cli.rules.rule_contract import CheckContext, Finding
from scanopt_cli.rules.rule_registry import selected

_MERGED_ANYWAY = "merge-equal"
"""What PyTensor does to equal nodes, loops among them, whenever it compiles a graph."""

type Baseline = Mapping[str, int]
"""How many findings of each key are known."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What `check` found.

    Attributes
    ----------
    findings
        What is wrong or wasteful, in the order of the rules.
    known
        How many findings are left out, since the baseline has them.
    """

    findings: tuple[Finding, ...]
    known: int = 0

    @property
    def fixes(self) -> str | None:
        """The pipeline that mends what can be mended safely, ``None`` if there is nothing."""
        names = [
            name
            for finding in self.findings
            if finding.fix is not None and finding.is_mended_safely
            for name in finding.fix.passes.split(",")
        ]
        order = {name: place for place, name in enumerate(registry())}
        distinct = sorted(dict.fromkeys(names), key=lambda name: order[name.partition("{")[0]])
        return ",".join(distinct) or None


@bounded_folding()
def check(
    graph: GraphLike,
    *,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    baseline: Baseline | None = None,
) -> CheckResult:
    """Look for what is wrong or wasteful in the loops of ``graph``, which stays as it is.

    Parameters
    ----------
    graph
        A loaded graph, a FunctionGraph or an ``(inputs, outputs)`` pair.
    select, ignore
        Codes of rules, or what they begin with: ``P`` for all that waste time or memory. All rules
        by default, but those for some users alone (J001).
    baseline
        Findings that are known, by their keys.

    Raises
    ------
    ScanoptError
        If ``graph`` is no graph, or a code is of no rule.
    """
    chosen = selected(tuple(select), tuple(ignore))
    work = as_graph(graph)
    locate(work.fgraph)
    run_pipeline(work.fgraph, parse(_MERGED_ANYWAY))
    context = CheckContext(work.fgraph)
    left = Counter(baseline or {})
    findings = []
    known = 0
    for rule in chosen:
        for finding in rule().find(context):
            if left[finding.key] > 0:
                left[finding.key] -= 1
                known += 1
            else:
                findings.append(finding)
    return CheckResult(tuple(findings), known)
