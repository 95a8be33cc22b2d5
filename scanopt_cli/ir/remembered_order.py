"""What passes find out of a graph, its topological order first, remembered until it changes.

Each pass asks for the order several times, and most passes leave the graph as it is.
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
        self.notes: dict[Any, Any] = {}
        """What else holds for the graph as it is, by whatever tells one note from another."""

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
        if self.notes:
            self.notes = {}

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


def notes_on(fgraph: FunctionGraph) -> dict[Any, Any]:
    """Return where to note what holds until ``fgraph`` changes; nobody reads it of other graphs."""
    found = (item.notes for item in fgraph._features if isinstance(item, RememberedOrder))
    return next(found, {})
