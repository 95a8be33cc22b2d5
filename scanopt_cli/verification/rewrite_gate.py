"""Counts PyTensor's rewrites while it compiles, and applies no more than the first so many.

As LLVM's ``-opt-bisect-limit`` does with passes. A rewrite is the replacement that one node
rewriter makes at one node, or all that a rewriter of whole graphs does in one run, without what
others do inside of it; or that one of them raises an error, which ends the compilation. What a
linker cannot do without is always applied, and not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import getsourcefile, getsourcelines, unwrap
from pathlib import Path
from typing import Any
from unittest import mock

from pytensor.compile.mode import optdb
from pytensor.graph.features import Feature
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import (
    GraphRewriter,
    NodeProcessingGraphRewriter,
    NodeRewriter,
    SequentialGraphRewriter,
)

from scanopt_cli.ir.graph import Graph, copy_nodes
from scanopt_cli.serialization.saving import save
from scanopt_cli.verification.child_record import AppliedRewrite

# They run other rewriters, which are counted.
_HOLDERS = (SequentialGraphRewriter, NodeProcessingGraphRewriter)
_LONGEST = 200


class RewriteGate:
    """Lets the first so many rewrites pass, and keeps what there is to know of the last one.

    The graphs around the rewrite at which the gate closes are kept if that is asked.
    """

    def __init__(
        self, most: int | None, without: str | None = None, *, keeps_graphs: bool = False
    ) -> None:
        self._most = most
        self._without = without
        self._keeps_graphs = keeps_graphs
        self._count = 0
        self.last: AppliedRewrite | None = None
        self.before: FunctionGraph | None = None
        self.after: FunctionGraph | None = None
        self._within: list[str] = []
        # Of the node at hand: which rewriter has a replacement, and the graph before that; or which
        # one raises an error.
        self._made_by: Any = None
        self._raised_by: Any = None
        self._unchanged: FunctionGraph | None = None

    @property
    def count(self) -> int:
        """How many rewrites were applied."""
        return self._count

    def add(self) -> None:
        """Count one more."""
        self._count += 1

    def save_graphs(self, directory: Path) -> None:
        """Write the graphs before and after the last rewrite, as far as there are any."""
        for name, graph in (("before", self.before), ("after", self.after)):
            if graph is not None:
                save(Graph(fgraph=graph), directory / f"{name}.pkl")

    @property
    def _is_closed(self) -> bool:
        return self._most is not None and self.count >= self._most

    def _copied(self, fgraph: FunctionGraph) -> FunctionGraph | None:
        """Return a copy of a graph if the next rewrite is the last one."""
        is_last = self._keeps_graphs and self.count + 1 == self._most
        return copy_nodes(fgraph) if is_last else None

    def note_transform(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return a node rewriter's method that notes which rewriter has a replacement.

        One node rewriter may stand for several, of which the innermost that does something counts.
        """

        def transform(rewriter: Any, fgraph: FunctionGraph, *args: Any, **kwargs: Any) -> Any:
            if _name(rewriter) == self._without:
                return False
            try:
                made = original(rewriter, fgraph, *args, **kwargs)
            except Exception:
                self._raised_by = self._raised_by or rewriter
                raise
            if made and self._made_by is None:
                self._made_by, self._unchanged = rewriter, self._copied(fgraph)
            return made

        return transform

    def process_node(self, original: Callable[..., bool]) -> Callable[..., bool]:
        """Return the method that applies a node rewriter, if the gate is open."""

        def process_node(
            holder: Any, fgraph: FunctionGraph, node: Any, rewriter: Any = None, **kwargs: Any
        ) -> bool:
            rewriter = rewriter or holder.node_rewriter
            if self._is_needed(holder):
                return original(holder, fgraph, node, rewriter, **kwargs)
            if self._is_closed:
                return False
            # A rewriter may rewrite an inner graph.
            around = self._made_by, self._unchanged, self._raised_by
            self._made_by = self._unchanged = self._raised_by = None
            text, count = str(node)[:_LONGEST], self.count
            try:
                done = original(holder, fgraph, node, rewriter, **kwargs)
            except Exception:
                if self.count == count:  # else one that ran inside of it has raised the error
                    raised_by = self._raised_by or self._made_by or rewriter
                    self.note(raised_by, None, self._copied(fgraph), text)
                raise
            if done:
                self.note(self._made_by or rewriter, fgraph, self._unchanged, text)
            self._made_by, self._unchanged, self._raised_by = around
            return done

        return process_node

    def apply(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return the method that runs a rewriter of graphs, if the gate is open."""

        def apply(rewriter: Any, fgraph: FunctionGraph, *args: Any, **kwargs: Any) -> Any:
            if isinstance(rewriter, _HOLDERS) or self._is_needed(rewriter):
                with self._inside(rewriter):
                    return original(rewriter, fgraph, *args, **kwargs)
            if self._is_closed or _name(rewriter) == self._without:
                empty = FunctionGraph([], [])  # of which it returns what its caller expects
                rewriter.add_requirements(empty)
                return original(rewriter, empty, *args, **kwargs)
            before = self._copied(fgraph)
            changes, count = _Changes(), self.count
            fgraph.attach_feature(changes)
            try:
                with self._inside(rewriter):
                    result = original(rewriter, fgraph, *args, **kwargs)
            except Exception:
                if self.count == count:
                    self.note(rewriter, None, before, None)
                raise
            finally:
                fgraph.remove_feature(changes)
            if changes.happened and self.count == count:
                self.note(rewriter, fgraph, before, None)
            return result

        return apply

    @contextmanager
    def _inside(self, rewriter: Any) -> Iterator[None]:
        name = getattr(rewriter, "name", None)
        self._within += [str(name)[:_LONGEST]] if name else []
        try:
            yield
        finally:
            del self._within[len(self._within) - bool(name) :]

    def note(
        self,
        rewriter: Any,
        fgraph: FunctionGraph | None,
        before: FunctionGraph | None,
        node: str | None,
    ) -> None:
        """Count a rewrite; there is no graph after one that raises an error."""
        self.add()
        name, within = _name(rewriter), tuple(self._within)
        positions: dict[str, float] = optdb.__position__
        self.last = AppliedRewrite(
            self.count,
            name,
            within,
            next((float(positions[n]) for n in (*within, name) if n in positions), None),
            _place(rewriter),
            node,
        )
        if before is not None:
            self.before, self.after = before, None if fgraph is None else copy_nodes(fgraph)

    @staticmethod
    def _is_needed(rewriter: Any) -> bool:
        """Whether a linker cannot do without a rewriter."""
        return any(rewriter is needed for needed in optdb.__db__["minimum_compile"])


class _Changes(Feature):
    """Notices whether a graph changes."""

    def __init__(self) -> None:
        self.happened = False

    def on_change_input(self, *_: Any, **__: Any) -> None:
        """Note that an input of a node changed."""
        self.happened = True


def _name(rewriter: Any) -> str:
    name = getattr(rewriter, "name", None) or getattr(rewriter, "__name__", None)
    return str(name or type(rewriter).__name__)[:_LONGEST]


def _place(rewriter: Any) -> str | None:
    """Return the file and line where a rewriter is written."""
    function = getattr(rewriter, "fn", None)
    source: Any = type(rewriter) if function is None else unwrap(function)
    try:
        path, line = getsourcefile(source), getsourcelines(source)[1]
    except (TypeError, OSError):
        return None
    return None if path is None else f"{Path(path).name}:{line}"


type _Method = tuple[type[Any], str, Callable[[Callable[..., Any]], Callable[..., Any]]]


def _methods(base: type[Any], name: str, wrap: Any) -> list[_Method]:
    """Return the classes that define a method of ``base`` anew, each once, and what wraps it."""
    found, waiting = [], [base]
    while waiting:
        waiting += (cls := waiting.pop()).__subclasses__()
        if cls is not base and name in vars(cls):
            found.append(cls)
    return [(cls, name, wrap) for cls in dict.fromkeys(found)]


@contextmanager
def rewrite_gate(
    most: int | None = None, without: str | None = None, *, keeps_graphs: bool = False
) -> Iterator[RewriteGate]:
    """Let PyTensor apply no more than ``most`` rewrites inside of the block, and count them.

    Those of the rewriter ``without`` are left out.
    """
    gate = RewriteGate(most, without, keeps_graphs=keeps_graphs)
    with closing(gate):
        yield gate


@contextmanager
def closing(gate: RewriteGate) -> Iterator[None]:
    """Let all of PyTensor's rewrites inside of the block go through a gate."""
    patched = [
        (NodeProcessingGraphRewriter, "process_node", gate.process_node),
        *_methods(NodeRewriter, "transform", gate.note_transform),
        *_methods(GraphRewriter, "apply", gate.apply),
    ]
    patches = [mock.patch.object(cls, name, wrap(vars(cls)[name])) for cls, name, wrap in patched]
    for patch in patches:
        patch.start()
    try:
        yield
    finally:
        for patch in reversed(patches):
            patch.stop()
