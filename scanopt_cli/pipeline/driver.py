"""Drives one pass over a graph and its bodies: applies, counts and bounds what it rewrites."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from pytensor.compile.builders import SymbolicOp
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import AbstractFunctionGraph, FrozenFunctionGraph, FunctionGraph
from pytensor.graph.op import Op
from pytensor.tensor.type import TensorType

from scanopt_cli.analysis.expression_text import inner_names
from scanopt_cli.equivalence.sameness import Sameness
from scanopt_cli.errors import PassFailedError, ScanoptError, brief
from scanopt_cli.ir.fast_graphs import rewrite_fast, unfrozen
from scanopt_cli.ir.inner_graphs import (
    body_of,
    core_op,
    inner_graphs,
    is_own_graph,
    only_narrows,
    op_name,
    walk,
    with_body,
)
from scanopt_cli.ir.remembered_order import RememberedOrder
from scanopt_cli.ir.scan_view import is_loop, view_of
from scanopt_cli.pipeline.contract import Fixpoint, Pass, PassContext, Rewrite, WholeGraph
from scanopt_cli.pipeline.registry import package_of
from scanopt_cli.remarks import Code, Remark, Why, because


class PipelineMemory:
    """What the passes of a pipeline learn about the graphs that it makes of one another.

    Most Ops and bodies stay as they are from pass to pass. Digests depend on the order of the slots
    of loops, which takes less time; ``exact`` is what the passes compare by, which does not.
    """

    def __init__(self) -> None:
        self._sameness = Sameness(in_order=True)
        self.exact = Sameness(gradients=True, exact=True)
        # By id; each entry keeps its body alive.
        self._holds_loop: dict[int, tuple[AbstractFunctionGraph, bool]] = {}
        self._applies_graph: dict[int, tuple[AbstractFunctionGraph, bool]] = {}
        self._unfrozen: dict[FrozenFunctionGraph, FunctionGraph] = {}

    def digest(self, fgraph: FunctionGraph) -> str:
        """Return what tells a graph from one that computes otherwise."""
        return self._sameness.of_graph(fgraph).hex()

    def form_of(self, fgraph: FunctionGraph) -> str:
        """Return the digest, the number of nodes, and that of unknown lengths, bodies included.

        The digest alone is the same for a graph in which equal nodes were merged, and for one whose
        variables declare lengths that they did not, by which a pass may find more to do.
        """
        nodes = list(walk(fgraph))
        unknown = sum(
            variable.type.shape.count(None)
            for node in nodes
            for variable in node.outputs
            if isinstance(variable.type, TensorType)
        )
        return f"{self.digest(fgraph)} of {len(nodes)}, {unknown}"

    def holds_loop(self, body: AbstractFunctionGraph) -> bool:
        """Whether a loop is in a body, or in one that this applies."""
        known = self._holds_loop.get(id(body))
        if known is None:
            # Each body is searched once, however many others apply it.
            found = any(
                is_loop(node) or any(map(self.holds_loop, inner_graphs(node.op)))
                for node in body.toposort()
            )
            known = self._holds_loop[id(body)] = (body, found)
        return known[1]

    def applies_graph(self, fgraph: AbstractFunctionGraph) -> bool:
        """Whether a node of a graph, or of one of its bodies, applies an OpFromGraph."""
        return any(
            is_own_graph(core_op(node.op))
            or any(map(self._body_applies_graph, inner_graphs(node.op)))
            for node in fgraph.apply_nodes
        )

    def _body_applies_graph(self, body: AbstractFunctionGraph) -> bool:
        known = self._applies_graph.get(id(body))
        if known is None:
            known = self._applies_graph[id(body)] = (body, self.applies_graph(body))
        return known[1]

    def unfrozen(self, body: FrozenFunctionGraph) -> FunctionGraph:
        """Return a body that can be rewritten: for whoever does that, or gives it back."""
        found = self._unfrozen.pop(body, None)
        if found is None:
            found = unfrozen(body)
            rewrite_fast(found)
            found.attach_feature(RememberedOrder())
        return found

    def give_back(self, body: FrozenFunctionGraph, unfrozen: FunctionGraph) -> None:
        """Keep a body for the next pass, which this one left as it was."""
        self._unfrozen[body] = unfrozen


def n_nodes(fgraph: AbstractFunctionGraph) -> int:
    """Return the number of nodes, bodies included, each distinct body once."""
    return sum(1 for _ in walk(fgraph))


def smallest(forms: Mapping[str, FunctionGraph], state: str) -> str:
    """Return the key of the graph with the fewest nodes, of those from ``state`` on.

    ``forms`` are by their digests or `PipelineMemory.form_of`, each made of the one before. Of
    graphs of one size, the smallest key decides.
    """
    keys = list(forms)
    cycle = keys[keys.index(state) :]
    return min(cycle, key=lambda form: (n_nodes(forms[form]), form))


@dataclass(slots=True)
class RewriteBudget:
    """Counts rewrites against a limit; without a limit, any number is allowed."""

    limit: int | None = None
    spent: int = 0

    @property
    def is_left(self) -> bool:
        """Whether another rewrite is allowed."""
        return self.limit is None or self.spent < self.limit


class PassDriver:
    """One pass of a pipeline, which it runs on bodies bottom-up, on each distinct body once."""

    def __init__(
        self,
        item: Pass,
        budget: RewriteBudget,
        *,
        strict: bool = True,
        memory: PipelineMemory | None = None,
    ) -> None:
        self.item = item
        self._memory = memory or PipelineMemory()
        self.remarks: list[Remark] = []
        self.rewrites = 0
        self.idle: set[str] = set()
        """The forms of graphs in which the pass changed nothing; it is not run on these again."""
        self._budget = budget
        # How many rewrites were applied, those that count as none among them.
        self._applied = 0
        # An error in a pass of another package is always raised.
        self._package = package_of(item)
        self._strict = strict or self._package is not None
        self._done: dict[FrozenFunctionGraph, FunctionGraph | None] = {}
        # Graphs in the form to which the pass leads: their digests, and the types of variables,
        # since more may be left to do once more lengths are known.
        self._settled: set[tuple[str, int]] = set()
        # The digests of graphs that the pass made on the way to that form.
        self._made: set[str] = set()

    def begin(self) -> None:
        """Forget what was rewritten and remarked, but not what it has learned of bodies."""
        self.remarks, self.rewrites = [], 0

    def run(self, fgraph: FunctionGraph) -> bool:
        """Rewrite the bodies in ``fgraph``, then ``fgraph`` itself.

        Raises
        ------
        PassFailedError
            If the pass is of another package and raises an error.
        """
        if self.item.of_graphs:
            if not self._memory.applies_graph(fgraph):
                return False
            self._done.clear()
        context = PassContext(
            fgraph,
            self.item.name,
            self.remarks,
            WholeGraph(fgraph),
            strict=self._strict,
            sameness=self._memory.exact,
        )
        try:
            return self._run(context)
        except Exception as error:
            if self._package is None or isinstance(error, ScanoptError):
                raise
            raise PassFailedError(
                f"the pass {self.item.name} of the package {self._package} failed ({brief(error)})",
                hint="leave it out, or tell its authors",
            ) from error

    def _run(self, context: PassContext) -> bool:
        changed = self._run_bodies(context)
        for _ in range(self.item.sweeps):
            if not self._sweep(context):
                break
            changed = True
        context.remark_on_comparisons()
        return changed

    def _sweep(self, context: PassContext) -> bool:
        """Apply what the pass yields, until it yields no more or the budget is spent."""
        changed = False
        rewrites = self.item.rewrites(context)
        try:
            while self._budget.is_left and (found := next(rewrites, None)) is not None:
                rewrite = (
                    self._at_fixpoint(found, context) if isinstance(found, Fixpoint) else found
                )
                if rewrite is None:
                    continue
                self._applied += 1
                rewrite.apply(context.fgraph, self.item.name)
                self._budget.spent += rewrite.count
                self.rewrites += rewrite.count
                changed = changed or rewrite.count > 0
        except Exception as error:
            context.failed(None, error)
        return changed

    def _at_fixpoint(self, fixpoint: Fixpoint, context: PassContext) -> Rewrite | None:
        """Return the rewrite to the form in which a graph stays, ``None`` if it has that form.

        Of forms that lead to one another it is the smallest, whichever of them the graph has. A
        graph that gets fewer nodes is rewritten once for now: most often, other passes change it
        before this one comes back, and no number of such rewrites leads back.
        """
        fgraph = context.fgraph
        state = before = self._memory.digest(fgraph)
        if (before, _types(fgraph)) in self._settled:
            return None
        forms = {before: fgraph}
        size = len(fgraph.apply_nodes)
        is_settled = True
        while len(forms) <= fixpoint.attempts:
            form = fixpoint.rewritten(forms[state])
            state = self._memory.digest(form)
            if state in forms:
                kept = smallest(forms, state)
                break
            forms[state] = form
            if before not in self._made and len(form.apply_nodes) < size:
                self._made.add(state)
                kept, is_settled = state, False
                break
        else:
            why = because(Why.NO_FIXPOINT, attempts=fixpoint.attempts)
            context.missed(None, Code.NOT_SIMPLIFIED, why)
            kept = before
        if is_settled:
            self._settled.add((kept, _types(forms[kept])))
        if kept == before:
            return None
        context.passed(None, Code.SIMPLIFIED, before=size, after=len(forms[kept].apply_nodes))
        return Rewrite(dict(zip(fgraph.outputs, forms[kept].outputs, strict=True)))

    def _run_bodies(self, context: PassContext) -> bool:
        changed = False
        fgraph = context.fgraph
        nodes = [node for node in fgraph.toposort() if body_of(node.op) is not None]
        shared = Counter(id(body_of(node.op)) for node in nodes)
        for node in nodes:
            body = body_of(node.op)
            assert body is not None
            if not (self._is_open(node.op) or self._memory.holds_loop(body)):
                continue
            # A body is rewritten once: if nodes share it, the name of their Op stands for all.
            title = context.title(node) if shared[id(body)] == 1 else op_name(node.op)
            new_op = self._rewritten(node, body, context, title)
            if new_op is not None:
                new_node: Apply = new_op.make_node(*node.inputs)
                context.keep_title(node, new_node)
                replacements = dict(zip(node.outputs, new_node.outputs, strict=True))
                Rewrite(replacements).apply(fgraph, f"{self.item.name} inside {op_name(node.op)}")
                changed = True
        return changed

    def _rewritten(
        self, node: Apply, body: FrozenFunctionGraph, context: PassContext, title: str
    ) -> Op | None:
        """Return the Op of ``node`` with its body rewritten, ``None`` if nothing changed there."""
        if body not in self._done:
            unfrozen = self._memory.unfrozen(body)
            names: Mapping[Variable, str] = {}
            if is_loop(node) and self._memory.holds_loop(body):  # whose slots are called after them
                view = view_of(node)
                frozen = inner_names(view, list(context.names(view).values()))
                to_unfrozen = dict(zip(body.inputs, unfrozen.inputs, strict=True))
                names = {to_unfrozen[variable]: name for variable, name in frozen.items()}
            inside = replace(
                context,
                fgraph=unfrozen,
                path=(*context.path, title),
                around=names,
                holder=node.op,
                is_inlined=bool(getattr(node.op, "is_inline", False)),
            )
            spent, rewrites, n_remarks = self._budget.spent, self.rewrites, len(self.remarks)
            applied = self._applied
            changed = self._run(inside)
            if self._applied == applied and not changed:
                self._memory.give_back(body, unfrozen)
            made = _with_body(node.op, body, unfrozen) if changed else None
            self._done[body] = None if made is None else unfrozen
            if changed and made is None:
                self._budget.spent, self.rewrites = spent, rewrites
                del self.remarks[n_remarks:]
                inside.missed(None, Code.BODY_LEFT, None)
            return made
        rewritten = self._done[body]
        return None if rewritten is None else with_body(node.op, rewritten)

    def _is_open(self, op: Op) -> bool:
        """Whether the pass works on a body even if it holds no loop.

        The body of a `SymbolicOp`, such as PyTensor's LogAddExp, belongs to its class: a backend
        may dispatch on the class alone, and a rewrite that makes such an Op makes its body anew.
        """
        return self.item.everywhere and not isinstance(core_op(op), SymbolicOp)


def _types(fgraph: FunctionGraph) -> int:
    """Return a hash of the types of all variables that nodes compute."""
    types = Counter(variable.type for node in fgraph.apply_nodes for variable in node.outputs)
    return hash(frozenset(types.items()))


def _with_body(op: Op, old: FrozenFunctionGraph, new: FunctionGraph) -> Op | None:
    """Return ``op`` with its body replaced, ``None`` if that cannot be.

    The graph around a body relies on its types, which include static lengths. PyTensor makes loops
    that it later refuses to make again: those whose states get another type in each step.
    """
    if only_narrows(old, new):
        return None
    try:
        return with_body(op, new)
    except (TypeError, ValueError):
        return None
