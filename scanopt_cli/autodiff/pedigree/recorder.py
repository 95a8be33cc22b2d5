"""Record, while differentiating, which Scan is the pullback of which or carries its tangents."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from typing import Any

from pytensor.gradient import grad as reverse_mode
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import toposort

from scanopt_cli.analysis.provenance.scan_origin import Origin
from scanopt_cli.autodiff.activity import useful
from scanopt_cli.autodiff.forward import jvp
from scanopt_cli.autodiff.pushforward_rules import Tangents
from scanopt_cli.ir.inner_graphs import PULLBACK, with_core
from scanopt_cli.ir.scan_view import is_loop, loop_op

# The prefix of temporary names. No loop is called this, so such a name identifies one node.
_TOKEN = "scanopt:pedigree:"


class ProvenanceRecorder:
    """The origins of the outer Scans of a graph, while derivatives are added to it.

    PyTensor names a pullback after its parent, but names repeat. So each Scan has a unique
    temporary name while PyTensor differentiates, and gets its own name back afterwards.
    """

    def __init__(self, origins: dict[Apply, Origin]) -> None:
        self.origins = origins

    def grad(self, cost: Variable, wrt: Sequence[Variable]) -> list[Variable | None]:
        """Return the gradient of ``cost``; ``None`` for what it does not depend on smoothly.

        The Scans made by this are added to ``origins``.
        """
        smooth = useful([cost])
        reached = [variable for variable in wrt if variable in smooth]
        if not reached:
            return [None] * len(wrt)
        scans = [node for node in toposort([cost]) if is_loop(node)]
        with _unique_names(scans) as names:
            results: Any = reverse_mode(
                cost, reached, disconnected_inputs="ignore", return_disconnected="none"
            )
        for node in toposort([result for result in results if result is not None]):
            if is_loop(node) and node not in self.origins:
                self.origins[node] = self._origin(node, names)
        found = dict(zip(reached, results, strict=True))
        return [found.get(variable) for variable in wrt]

    def tangents(
        self, outputs: Sequence[Variable], directions: Sequence[Mapping[Variable, Variable]]
    ) -> Sequence[Tangents]:
        """Return the tangents of `jvp`, and add the Scans made by this to ``origins``."""
        pushed = jvp(outputs, directions)
        for old, new in pushed.nodes.items():
            origin = self.origins.get(old)
            if origin is None or not is_loop(new):
                continue
            if loop_op(new) is not loop_op(old):
                generation = None if origin.generation is None else origin.generation + 1
                origin = Origin(None, generation, None, _name(old) or "a loop without a name")
            elif origin.parent is not None:
                origin = replace(origin, parent=pushed.nodes.get(origin.parent, origin.parent))
            self.origins[new] = origin
        return pushed.tangents

    def record_inferred(self, inferred: Mapping[Apply, Origin]) -> None:
        """Record the origins of Scans that passes or vectorising made from others.

        A Scan with the name of a recorded loop with tangents has the origin of that one. The others
        have the origin in ``inferred``, which follows from names and structure.
        """
        known = {
            _name(node): origin
            for node, origin in self.origins.items()
            if origin.tangents_of is not None
        }
        for node, origin in inferred.items():
            self.origins.setdefault(node, known.get(_name(node), origin))

    def within(self, copies: dict[Apply, Apply]) -> dict[Apply, Origin]:
        """Return the origins of the Scans of a copy; ``copies`` maps old nodes to new ones."""
        return {
            copies[node]: self._copied(origin, copies)
            for node, origin in self.origins.items()
            if node in copies
        }

    def _origin(self, node: Apply, names: dict[str, Apply]) -> Origin:
        """Find the origin of a new Scan from its temporary name, and give it its final name."""
        name = _name(node) or ""
        if name in names:
            rename(node, _name(names[name]))
            return self.origins[names[name]]
        parent = names.get(name.removeprefix(PULLBACK))
        if parent is None:
            return Origin(None, None, "made by the derivative of another Op")
        old = _name(parent)
        rename(node, f"{PULLBACK}{old}" if old else None)
        generation = self.origins[parent].generation
        return Origin(parent, None if generation is None else generation + 1)

    def _copied(self, origin: Origin, copies: dict[Apply, Apply]) -> Origin:
        if origin.parent is None:
            return origin
        if origin.parent in copies:
            return replace(origin, parent=copies[origin.parent])
        name = _name(origin.parent) or "its Scan"
        return Origin(None, origin.generation, f"nothing in this graph needs {name}")


def rename(node: Apply, name: str | None) -> None:
    """Rename the Scan that ``node`` applies, in place; other nodes of that Scan keep their name."""
    loop = copy(loop_op(node))
    loop.name = name
    node.op = with_core(node.op, loop)


def _name(node: Apply) -> str | None:
    op = loop_op(node)
    return None if op is None else op.name


def without_tokens(text: str) -> str:
    """Return a message of PyTensor's without the names that `ProvenanceRecorder` gives."""
    return re.sub(rf"{_TOKEN}\d+", "…", text)


@contextmanager
def _unique_names(scans: Iterable[Apply]) -> Iterator[dict[str, Apply]]:
    """Give each node's Scan a unique name temporarily; yield the nodes by these names."""
    ops = [(node, node.op) for node in scans]
    names = {f"{_TOKEN}{position}": node for position, (node, _) in enumerate(ops)}
    for name, node in names.items():
        rename(node, name)
    try:
        yield names
    finally:
        for node, op in ops:
            node.op = op
