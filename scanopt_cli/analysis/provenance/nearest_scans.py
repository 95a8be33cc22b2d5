"""Which Scans and inputs of a graph a Scan depends on: the nearest ones, and all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from pytensor.graph.basic import Apply, Variable

from scanopt_cli.ir.scan_view import is_loop


class NearestScans:
    """The dependences between the Scans of one graph, without those in bodies.

    ``nodes`` are those of the graph in topological order, and ``scans`` the Scans among them.
    """

    def __init__(self, inputs: Sequence[Variable], nodes: Iterable[Apply]) -> None:
        self.scans: list[Apply] = []
        self._inputs = {variable: i for i, variable in enumerate(inputs)}
        self._nearest = defaultdict[Variable, frozenset[Apply]](frozenset)
        self._read = defaultdict[Variable, frozenset[Variable]](frozenset)
        self._read.update((v, frozenset((v,))) for v in inputs)
        self._ancestors: dict[Apply, frozenset[Apply]] = {}
        for node in nodes:
            nearest = frozenset[Apply]().union(*map(self._nearest.__getitem__, node.inputs))
            read = frozenset[Variable]().union(*map(self._read.__getitem__, node.inputs))
            if is_loop(node):
                self.scans.append(node)
                self._ancestors[node] = nearest.union(*(self._ancestors[n] for n in nearest))
                self._nearest.update(dict.fromkeys(node.outputs, frozenset((node,))))
            else:
                self._nearest.update(dict.fromkeys(node.outputs, nearest))
                self._read.update(dict.fromkeys(node.outputs, read))

    def scans_before(self, variable: Variable) -> frozenset[Apply]:
        """Return the Scans whose results reach ``variable`` without passing another Scan."""
        return self._nearest[variable]

    def scans_feeding(self, node: Apply) -> list[Apply]:
        """Return the Scans whose results reach the Scan ``node`` without passing another Scan."""
        found = frozenset[Apply]().union(*map(self._nearest.__getitem__, node.inputs))
        return [scan for scan in self.scans if scan in found]

    def inputs_feeding(self, node: Apply) -> list[Variable]:
        """Return the graph's inputs that reach the Scan ``node`` without passing another Scan."""
        found = frozenset[Variable]().union(*map(self._read.__getitem__, node.inputs))
        return sorted(found, key=self._inputs.__getitem__)

    def ancestors(self, node: Apply) -> frozenset[Apply]:
        """Return every Scan that the Scan ``node`` depends on."""
        return self._ancestors[node]
