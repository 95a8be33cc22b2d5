"""Lengths in the body of a loop or graph, told by those of what is around it."""

from __future__ import annotations

from pytensor.graph.basic import Apply, Variable

from scanopt_cli.analysis.affine import AffineExpr, Atom, as_affine, total
from scanopt_cli.analysis.formulas import Formula
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.minima import minimum_text
from scanopt_cli.ir.inner_graphs import body_of
from scanopt_cli.ir.scan_view import batch_ndim, is_loop, view_of
from scanopt_cli.ir.slots import SlotKind

_OF_ROWS = (SlotKind.SEQ, SlotKind.MIT_MOT, SlotKind.MIT_SOT, SlotKind.SIT_SOT)
"""The kinds of slots that give a step a row of an array."""
_WHOLE = (SlotKind.STATE, SlotKind.NON_SEQ, SlotKind.CONSTANT)


class OuterLengths:
    """Replaces what the body of a node reads by what feeds it."""

    def __init__(self, node: Apply) -> None:
        self._lengths, self._inside = Lengths(), Lengths()
        self._sources: dict[Variable, tuple[Variable, int]] = {}
        if is_loop(node):
            view = view_of(node)
            for slot in view.slots:
                if slot.kind in _OF_ROWS or slot.kind in _WHOLE:
                    first = view.batch_ndim + int(slot.kind in _OF_ROWS)
                    for variable in slot.inner_inputs:
                        self._sources[variable] = (slot.outer_input, first)
        elif (body := body_of(node.op)) is not None:
            outer = ((variable, batch_ndim(node)) for variable in node.inputs)
            self._sources = dict(zip(body.inputs, outer, strict=True))

    def of_length(self, length: AffineExpr) -> AffineExpr:
        """Return a length of the body in what is known around it."""
        known = as_affine(length.constant)
        return total((known, *(self._of(atom).scaled(n) for atom, n in length.terms)))

    def of_formula(self, formula: Formula) -> Formula:
        """Return a formula of the body in what is known around it."""
        return formula.told(self.of_length)

    def _of(self, atom: Atom) -> AffineExpr:
        parts = minimum_text(atom.variable, self._part) if atom.axis is None else None
        if parts is not None:
            return AffineExpr.of(Atom(atom.variable, text=parts))
        source = self._sources.get(atom.variable)
        if source is None or atom.axis is None:
            return AffineExpr.of(atom)
        outer, first = source
        return self._lengths.length_of(outer, first + atom.axis)

    def _part(self, variable: Variable) -> str:
        """Return the text of an operand of a minimum."""
        return str(self.of_length(self._inside.value_of(variable)))
