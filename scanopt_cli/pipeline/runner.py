"""Runs passes, on bodies first, to a fixpoint, with remarks, timings and checks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from types import MappingProxyType

from pytensor.compile.builders import SymbolicOp
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FrozenFunctionGraph, FunctionGraph
from pytensor.graph.op import Op

from scanopt_cli.analysis.describing import inner_names
from scanopt_cli.equivalence.canonical import digest
from scanopt_cli.errors import PassError
from scanopt_cli.ir.inner_graphs import (
    body_of,
    core_op,
    inner_graphs,
    only_narrows,
    op_name,
    walk,
    with_body,
)
from scanopt_cli.ir.integrity import check_integrity
from scanopt_cli.ir.scan_view import ScanView, scan_op
from scanopt_cli.pipeline.contract import Pass, PassContext, Remark, RemarkKind, RewriteBudget

# A pipeline runs to a fixpoint. Most graphs need a few rounds; a change to one loop may enable the
# next, which may take one more round for each loop. Still more rounds mean that passes undo each
# other, so after a few rounds the runner looks for a graph that it has seen before.
_ROUNDS = 10
_ROUNDS_WITHOUT_DOUBT = 4


@dataclass(frozen=True, slots=True)
class PassRun:
    """What one pass of a pipeline did, over all rounds.

    ``seconds`` is wall time; ``rewrites`` counts what the pass spent of the budget, for each
    distinct body once.
    """

    name: str
    changed: bool
    seconds: float
    rewrites: int
    remarks: tuple[Remark, ...]


type Watcher = Callable[[Pass, FunctionGraph], None]
"""Called after each pass that changed something, with the graph as it is then."""


def run_pipeline(
    fgraph: FunctionGraph,
    passes: Sequence[Pass],
    *,
    limit: int | None = None,
    rounds: int | None = None,
    watch: Watcher | None = None,
) -> tuple[PassRun, ...]:
    """Run ``passes`` on ``fgraph`` in place, in order, to a fixpoint.

    ``limit`` bounds the number of rewrites, and ``rounds`` how often all passes run.

    Raises
    ------
    PassError
        If a pass that trims buffers comes before one that does not take trimmed loops, or if a
        pass breaks the graph or its signature.
    """
    _check_order(passes)
    budget = RewriteBudget(limit)
    walkers = [_Walker(item, budget) for item in passes]
    signature = _signature(fgraph)
    seconds = [0.0] * len(passes)
    most = _ROUNDS + sum(scan_op(node) is not None for node in walk(fgraph))
    seen: set[str] = set()
    # A pass that changed nothing is skipped until another pass changes the graph.
    changes, idle_at = 0, [-1] * len(passes)
    for number in range(most if rounds is None else rounds):
        busy: list[_Walker] = []
        for position, walker in enumerate(walkers):
            if idle_at[position] == changes:
                continue
            begin = perf_counter()
            changed = walker.run(fgraph)
            seconds[position] += perf_counter() - begin
            if changed:
                changes += 1
                _check(fgraph, signature, walker.item)
                busy.append(walker)
                if watch is not None:
                    watch(walker.item, fgraph)
            else:
                idle_at[position] = changes
        if not busy:
            break
        if rounds is None and number >= _ROUNDS_WITHOUT_DOUBT:
            state = digest(fgraph)
            if state in seen or number + 1 == most:
                _stop(busy, number + 1)
                break
            seen.add(state)
    return tuple(
        PassRun(
            name=walker.item.name,
            changed=walker.rewrites > 0,
            seconds=spent,
            rewrites=walker.rewrites,
            remarks=tuple(dict.fromkeys(walker.remarks)),
        )
        for walker, spent in zip(walkers, seconds, strict=True)
    )


def _stop(busy: Sequence[_Walker], rounds: int) -> None:
    """Remark which passes would keep rewriting each other's results; the graph is correct."""
    names = ", ".join(dict.fromkeys(walker.item.name for walker in busy))
    message = f"stopped after {rounds} rounds: {names} would change the graph again and again"
    busy[-1].remarks.append(Remark(busy[-1].item.name, "graph", RemarkKind.KEPT, message))


class _Walker:
    """One pass of a pipeline, which it runs on bodies bottom-up, on each distinct body once."""

    def __init__(self, item: Pass, budget: RewriteBudget) -> None:
        self.item = item
        self.remarks: list[Remark] = []
        self.rewrites = 0
        self._budget = budget
        self._done: dict[FrozenFunctionGraph, FunctionGraph | None] = {}
        self._settled: set[str] = set()
        self._holds_scan: dict[int, tuple[FrozenFunctionGraph, bool]] = {}

    def run(
        self,
        fgraph: FunctionGraph,
        path: tuple[str, ...] = (),
        around: Mapping[Variable, str] = MappingProxyType({}),
        *,
        is_inlined: bool = False,
    ) -> bool:
        """Rewrite the bodies in ``fgraph``, then ``fgraph`` itself."""
        before = self._budget.spent
        context = PassContext(
            fgraph,
            self.item.name,
            self._budget,
            self.remarks,
            path,
            around,
            is_inlined,
            self._settled,
        )
        changed = self._run_bodies(context)
        inside = self._budget.spent - before
        changed = self.item.run(context) or changed
        context.tell_doubts()
        self.rewrites += self._budget.spent - before - inside
        return changed

    def _run_bodies(self, context: PassContext) -> bool:
        changed = False
        fgraph = context.fgraph
        nodes = fgraph.toposort()
        shared = Counter(id(body_of(node.op)) for node in nodes)
        for node in nodes:
            body = body_of(node.op)
            if body is None or not (self._is_open(node.op) or self._has_scan(body)):
                continue
            # A body is rewritten once: if nodes share it, the name of their Op stands for all.
            title = context.title(node) if shared[id(body)] == 1 else op_name(node.op)
            new_op = self._rewritten(node, body, context, title)
            if new_op is not None:
                new_node: Apply = new_op.make_node(*node.inputs)
                context.keep_title(node, new_node)
                pairs = list(zip(node.outputs, new_node.outputs, strict=True))
                fgraph.replace_all(pairs, reason=f"{self.item.name} inside {op_name(node.op)}")
                changed = True
        return changed

    def _rewritten(
        self, node: Apply, body: FrozenFunctionGraph, context: PassContext, title: str
    ) -> Op | None:
        """Return the Op of ``node`` with its body rewritten, ``None`` if nothing changed there."""
        if body not in self._done:
            unfrozen = body.unfreeze()
            names: Mapping[Variable, str] = {}
            if scan_op(node) is not None:
                view = ScanView.of(node)
                frozen = inner_names(view, list(context.names(view).values()))
                to_unfrozen = dict(zip(body.inputs, unfrozen.inputs, strict=True))
                names = {to_unfrozen[variable]: name for variable, name in frozen.items()}
            path = (*context.path, title)
            spent, rewrites, n_remarks = self._budget.spent, self.rewrites, len(self.remarks)
            is_inlined = bool(getattr(node.op, "is_inline", False))
            changed = self.run(unfrozen, path, names, is_inlined=is_inlined)
            if changed and only_narrows(body, unfrozen):
                # The graph around the body relies on its types, which include static lengths.
                self._budget.spent, self.rewrites, changed = spent, rewrites, False
                del self.remarks[n_remarks:]
                message = "its body: what it returns would have another type"
                self.remarks.append(
                    Remark(self.item.name, "/".join(path), RemarkKind.KEPT, message)
                )
            self._done[body] = unfrozen if changed else None
        rewritten = self._done[body]
        return None if rewritten is None else with_body(node.op, rewritten)

    def _is_open(self, op: Op) -> bool:
        """Whether the pass works on a body even if it holds no loop.

        The body of a `SymbolicOp`, such as PyTensor's LogAddExp, belongs to its class: a backend
        may dispatch on the class alone, and a rewrite that makes such an Op makes its body anew.
        """
        return self.item.everywhere and not isinstance(core_op(op), SymbolicOp)

    def _has_scan(self, body: FrozenFunctionGraph) -> bool:
        known = self._holds_scan.get(id(body))
        if known is None:
            found = any(
                scan_op(node) is not None
                or any(
                    self._has_scan(inner)
                    for inner in inner_graphs(node.op)
                    if isinstance(inner, FrozenFunctionGraph)
                )
                for node in body.toposort()
            )
            known = (body, found)
            self._holds_scan[id(body)] = known
        return known[1]


def _check_order(passes: Sequence[Pass]) -> None:
    trimming: Pass | None = None
    for item in passes:
        if trimming is not None and not getattr(item, "takes_trimmed", True):
            raise PassError(
                f"{item.name} cannot run after {trimming.name}, which leaves trimmed loops",
                where="pipeline",
                hint=f"move {trimming.name} to the end",
            )
        if item.trims:
            trimming = item


def _signature(fgraph: FunctionGraph) -> list[object]:
    inputs = [(variable.type, variable.name) for variable in fgraph.inputs]
    return [*inputs, *(_kind(variable.type) for variable in fgraph.outputs)]


def _kind(output_type: object) -> object:
    """Return an output's type without static lengths, which a rewrite may infer."""
    dtype, ndim = getattr(output_type, "dtype", None), getattr(output_type, "ndim", None)
    return type(output_type), dtype, ndim


def _check(fgraph: FunctionGraph, signature: list[object], item: Pass) -> None:
    try:
        check_integrity(fgraph)
    except Exception as error:
        raise PassError(f"the pass {item.name} broke the graph ({error})") from error
    if _signature(fgraph) != signature:
        raise PassError(f"the pass {item.name} changed the graph's inputs or the types of outputs")
