"""The digests of the variables of one graph; see `scanopt_cli.equivalence.canonical`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pytensor.graph.basic import Apply, Constant, Variable

from scanopt_cli.equivalence.definition import Definition
from scanopt_cli.equivalence.operands import in_one_order
from scanopt_cli.ir.scan_view import is_loop, view_of


class Digests:
    """Digests of the variables of one graph, each computed once.

    ``inputs`` are the graph's inputs. Other roots that are not constants are opaque: they are
    compared by identity. A digest stays valid as long as nothing upstream of its variable changes.
    ``sameness`` defines what counts as equal. At a glance, loops of the graph that are fed the same
    count as equal.
    """

    def __init__(
        self, inputs: Iterable[Variable], sameness: Definition, *, at_a_glance: bool = False
    ) -> None:
        self.sameness = sameness
        self._of_loop = sameness.of_loop_at_a_glance if at_a_glance else sameness.of_loop
        self._known: dict[Variable, bytes] = {}
        for position, variable in enumerate(inputs):
            key = self.sameness.key("input", position, variable.type, self._name(variable))
            self._known[variable] = key

    @classmethod
    def given(
        cls, sameness: Definition, known: Mapping[Variable, bytes], *, at_a_glance: bool = False
    ) -> Digests:
        """Return digests that start from the ``known`` digests of some variables."""
        digests = cls((), sameness, at_a_glance=at_a_glance)
        digests._known.update(known)
        return digests

    def of(self, variable: Variable) -> bytes:
        """Return the digest of ``variable``; only upstream digests not yet known are computed."""
        waiting = [variable]
        while waiting:
            node = waiting[-1].owner
            if waiting[-1] in self._known:
                waiting.pop()
            elif node is None:
                self._leaf(waiting.pop())
            elif unknown := [part for part in node.inputs if part not in self._known]:
                waiting.extend(unknown)
            else:
                self.add(node)
        return self._known[variable]

    def add(self, node: Apply) -> None:
        """Compute the digests of the outputs of ``node``.

        Each of its inputs has a digest already or has no owner.
        """
        inputs = [
            self._leaf(variable) if variable.owner is None else self._known[variable]
            for variable in node.inputs
        ]
        if is_loop(node):
            keys = self._of_loop(self.of, view_of(node))
        else:
            op, of_output = self.sameness.of_op(node.op), self.sameness.of_output
            ordered = in_one_order(node, inputs)
            keys = {v: of_output(op, ordered, position) for position, v in enumerate(node.outputs)}
        if self.sameness.names:
            keys = {v: self.sameness.key("named", key, v.name) for v, key in keys.items()}
        self._known.update(keys)

    def _leaf(self, variable: Variable) -> bytes:
        known = self._known.get(variable)
        if known is None:
            known = (
                self.sameness.of_constant(variable)
                if isinstance(variable, Constant)
                else self.sameness.key("root", variable, self._name(variable))
            )
            self._known[variable] = known
        return known

    def _name(self, variable: Variable) -> str | None:
        return variable.name if self.sameness.names else None
