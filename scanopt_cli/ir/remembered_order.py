"""The topological order of a graph, remembered until the graph changes.

Each pass asks for it several times, and most passes leave the graph as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pytensor.graph.basic import Apply
from pytensor.graph.features import Feature, register_feature_callback
from pytensor.graph.fg import FunctionGraph


class RememberedOrder(Feature):
    """Answers ``toposort`` of the graph that it is attached to."""

    def __init__(self) -> None:
        self._order: list[Apply] | None = None

    def on_attach(self, fgraph: FunctionGraph) -> None:
        """Take over ``toposort``."""

        def toposort() -> list[Apply]:
            if self._order is None:
                self._order = FunctionGraph.toposort(fgraph)
            return self._order.copy()

        fgraph.toposort = toposort  # type: ignore[method-assign]

    def on_detach(self, fgraph: FunctionGraph) -> None:
        """Give ``toposort`` back."""
        del fgraph.toposort

    def clone(self) -> RememberedOrder:
        """Return what remembers the order of another graph."""
        return RememberedOrder()

    def _forget(self, *_: Any, **__: Any) -> None:
        self._order = None

    on_import = register_feature_callback(_forget)
    on_prune = on_change_input = on_import


@contextmanager
def remembered_order(fgraph: FunctionGraph) -> Iterator[None]:
    """Remember the order of ``fgraph`` for as long as this lasts."""
    feature = RememberedOrder()
    fgraph.attach_feature(feature)
    try:
        yield
    finally:
        fgraph.remove_feature(feature)
