"""Copies of a graph whose loops are found again, whatever rewrites them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph

from scanopt_cli.analysis.named_loops import NamedLoop
from scanopt_cli.ir.graph import copy_nodes
from scanopt_cli.ir.scan_view import ScanView


def titled_copy(
    fgraph: FunctionGraph, loops: Iterable[NamedLoop]
) -> tuple[FunctionGraph, list[Variable]]:
    """Return a copy of a graph in which each of ``loops`` is called by its title; and its outputs.

    The loops are Scans of the graph itself. A merged loop has the names of all of which it is made.
    """
    memo: dict[Any, Any] = {}
    work = copy_nodes(fgraph, memo)
    outputs: list[Variable] = []
    for loop in loops:
        view = ScanView.of(memo[loop.view.node])
        view.unfreeze()
        view.new_name = _mark(loop.title)
        made = view.rebuild()
        work.replace_all(list(made.items()), import_missing=True)
        outputs += made.values()
    return work, outputs


def titles_of(op: Any, loops: Iterable[NamedLoop]) -> list[str]:
    """Return the titles of the loops of which a loop of such a copy is made."""
    name = str(op.name)
    return [loop.title for loop in loops if _mark(loop.title) in name]


def _mark(title: str) -> str:
    return f"<{title}>"
