"""Copies of a graph whose loops are found again, whatever rewrites them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import AbstractFunctionGraph, FrozenFunctionGraph, FunctionGraph

from scanopt_cli.analysis.named_loops import NamedLoop
from scanopt_cli.ir.graph import copy_nodes
from scanopt_cli.ir.inner_graphs import body_of, with_body
from scanopt_cli.ir.scan_view import ScanView

_MARK = re.compile(r"<(\d+)>")


def titled_copy(
    fgraph: FunctionGraph, loops: Sequence[NamedLoop]
) -> tuple[FunctionGraph, list[Variable]]:
    """Return a copy of a graph in which each of ``loops`` has a name of its own.

    The loops are Scans of the graph or of bodies in it. A merged loop has the names of all of which
    it is made. Returned as well are the outputs of the nodes that are, or hold, one of them.
    """
    memo: dict[Any, Any] = {}
    work = copy_nodes(fgraph, memo)
    return work, _Naming(loops).name(fgraph, work, memo)


def titles_of(name: object, loops: Sequence[NamedLoop]) -> list[str]:
    """Return the titles of those of ``loops`` of which a loop is made, by its name in a copy."""
    places = map(int, _MARK.findall(str(name)))
    return [loops[place].title for place in places if place < len(loops)]


class _Naming:
    """Names loops by their places in a list, each body that holds some of them once."""

    def __init__(self, loops: Sequence[NamedLoop]) -> None:
        # A node of frozen bodies may be in several of them.
        self._names = {
            (id(loop.graph), loop.view.node): f"<{place}>" for place, loop in enumerate(loops)
        }
        self._bodies: dict[int, tuple[FrozenFunctionGraph, FunctionGraph | None]] = {}

    def name(
        self, graph: AbstractFunctionGraph, work: FunctionGraph, memo: dict[Any, Any]
    ) -> list[Variable]:
        """Name the loops of ``graph`` in ``work``, its copy; return outputs of what changed."""
        changed: list[Variable] = []
        for node in graph.toposort():
            name = self._names.get((id(graph), node))
            body = body_of(node.op)
            inner = None if body is None else self._named(body)
            if name is None and inner is None:
                continue
            copy: Apply = memo[node]
            new = copy if inner is None else with_body(copy.op, inner).make_node(*copy.inputs)
            outputs = new.outputs
            if name is not None:
                view = ScanView.of(new)
                view.unfreeze()
                view.new_name = name
                made = view.rebuild()
                outputs = [made[output] for output in outputs]
            work.replace_all(list(zip(copy.outputs, outputs, strict=True)), import_missing=True)
            changed += outputs
        return changed

    def _named(self, body: FrozenFunctionGraph) -> FunctionGraph | None:
        """Return a copy of a body in which the loops have names, ``None`` if it has none."""
        if id(body) not in self._bodies:
            work, memo = body.unfreeze(return_memo=True)
            changed = self.name(body, work, memo)
            self._bodies[id(body)] = body, work if changed else None
        return self._bodies[id(body)][1]
