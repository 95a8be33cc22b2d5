"""Lengths inside of a body, in terms of the lengths of the graph around it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from pytensor.graph.basic import Apply, Variable

from scanopt_cli.analysis.affine import AffineExpr, Atom, as_affine, total
from scanopt_cli.analysis.formulas import Formula
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.minima import minimum_parts, minimum_text
from scanopt_cli.ir.inner_graphs import body_of
from scanopt_cli.ir.scan_view import batch_ndim, is_loop, view_of
from scanopt_cli.ir.slots import SlotKind

_OF_ROWS = frozenset({SlotKind.SEQ, SlotKind.MIT_MOT, SlotKind.MIT_SOT, SlotKind.SIT_SOT})
"""The kinds of slots that give a step a row of an array."""
_WHOLE = frozenset({SlotKind.NON_SEQ, SlotKind.CONSTANT})
"""The kinds of slots that give it what is outside, and the same in each step."""
_WITH_SOURCE = _OF_ROWS | _WHOLE | {SlotKind.STATE}
_MOST_TERMS = 8


class BodyLengths:
    """The lengths and numbers that the body of a node reads.

    A body has variables of its own, whose lengths mean nothing to a reader of a report. So they are
    expressed in the lengths of what feeds the node, through all loops around it. A length that is
    unknown outside, or has more than 8 terms there, keeps the name that the body has for it.

    Nodes may share a body, so what is told of one says nothing of another: unknowns are replaced by
    others, which this node alone has.

    Parameters
    ----------
    node
        A loop, or another node with a body.
    lengths
        What reads lengths off the graphs, without assuming a trip count.
    around
        The lengths of the body that the node is in, if it is in one.
    names
        What the body calls its inputs.
    """

    def __init__(
        self,
        node: Apply,
        lengths: Lengths | None = None,
        around: BodyLengths | None = None,
        names: Mapping[Variable, str] = MappingProxyType({}),
    ) -> None:
        self._lengths = lengths or Lengths()
        self._around = around
        self._names = names
        self._told: dict[Atom, AffineExpr] = {}
        # What feeds an input of the body, and the number of the axes that the node takes from it.
        self._sources: dict[Variable, tuple[Variable, int]] = {}
        # The inputs that are what feeds them.
        self._unchanged: set[Variable] = set()
        n_batch = batch_ndim(node)
        if is_loop(node):
            view = view_of(node)
            for slot in view.slots:
                if slot.kind in _WITH_SOURCE:
                    n_axes = n_batch + (slot.kind in _OF_ROWS)
                    self._sources |= dict.fromkeys(slot.inner_inputs, (slot.outer_input, n_axes))
                if slot.kind in _WHOLE and not n_batch:
                    self._unchanged.update(slot.inner_inputs)
        elif (body := body_of(node.op)) is not None:
            for variable, outer in zip(body.inputs, node.inputs, strict=True):
                self._sources[variable] = (outer, n_batch)
            self._unchanged.update(() if n_batch else body.inputs)

    def shape(self, variable: Any) -> list[AffineExpr]:
        """Return the lengths of the axes of a variable of the body."""
        return list(map(self.in_outer_terms, self._lengths.shape(variable)))

    def value_of(self, variable: Variable) -> AffineExpr:
        """Return the number that a variable of the body holds.

        It is told by what is outside, unless that is not known of a number in it.
        """
        value = self._lengths.value_of(variable)
        is_known = all(atom.axis is not None or self._is_told(atom) for atom in value.atoms)
        return self.in_outer_terms(value) if is_known else value

    def in_outer_terms(self, length: AffineExpr) -> AffineExpr:
        """Return an expression in variables of the body in those of the outermost graph."""
        known = as_affine(length.constant)
        return total((known, *(self._atom(atom).scaled(n) for atom, n in length.terms)))

    def formula_outside(self, formula: Formula) -> Formula:
        """Return the same of a formula."""
        return formula.substituted(self.in_outer_terms)

    def _atom(self, atom: Atom) -> AffineExpr:
        if atom not in self._told:
            found = self._outside(atom) if self._is_told(atom) else None
            if found is None or len(found.terms) > _MOST_TERMS:
                found = AffineExpr.of(self._own(atom))
            self._told[atom] = found
        return self._told[atom]

    def _is_told(self, atom: Atom) -> bool:
        known = self._sources if atom.axis is not None else self._unchanged
        return atom.variable in known

    def _outside(self, atom: Atom) -> AffineExpr:
        outer, n_axes = self._sources[atom.variable]
        if atom.axis is None:
            found = self._lengths.value_of(outer)
        else:
            found = self._lengths.length_of(outer, n_axes + atom.axis)
        return found if self._around is None else self._around.in_outer_terms(found)

    def _own(self, atom: Atom) -> Atom:
        """Return an unknown that this node alone has, computed as the body computes it."""
        variable = atom.variable
        own, node = variable.type(), variable.owner
        if node is not None:
            outputs = [own if v is variable else v.type() for v in node.outputs]
            Apply(node.op, list(node.inputs), outputs)
        text = self._names.get(variable) or variable.name or atom.text
        if atom.axis is None:
            text = minimum_text(variable, self._part_text) or text
        return Atom(own, atom.axis, text)

    def _part_text(self, part: Variable) -> str:
        value = self._lengths.value_of(part)
        is_minimum = any(minimum_parts(atom.variable) for atom in value.atoms)
        return "…" if is_minimum else str(self.in_outer_terms(value))
