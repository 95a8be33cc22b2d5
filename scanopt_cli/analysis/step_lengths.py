"""Lengths in the step of a loop, told by those of the arrays that the outermost loop reads."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from pytensor.graph.basic import Variable

from scanopt_cli.analysis.affine import AffineExpr, Atom, as_affine, total
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.minima import minimum_parts, minimum_text
from scanopt_cli.ir.slots import SlotKind, SlotView

_OF_ROWS = frozenset({SlotKind.SEQ, SlotKind.MIT_MOT, SlotKind.MIT_SOT, SlotKind.SIT_SOT})
"""The kinds of slots that give a step a row of an array."""
_WHOLE = frozenset({SlotKind.NON_SEQ, SlotKind.CONSTANT})
"""The kinds of slots that give it what is outside, and the same in each step."""
_WITH_SOURCE = _OF_ROWS | _WHOLE | {SlotKind.STATE}
_MOST_TERMS = 8


class StepLengths:
    """The lengths and numbers that a step of a loop reads.

    A step has variables of its own: what it knows of their lengths says nothing to who reads a
    report. Here they are told by what feeds the loop, through all loops around it. What that does
    not tell is called as the step calls it; a formula of more than 8 terms, too.

    Bodies of loops may share variables, so what is told of one says nothing of another: unknowns
    are replaced by others, which this loop alone has.

    Parameters
    ----------
    view
        The loop.
    lengths
        What reads lengths off the graphs, without assuming a trip count.
    around
        The lengths of the step that the loop is in, if it is in one.
    names
        What the step calls its inputs.
    """

    def __init__(
        self,
        view: SlotView,
        lengths: Lengths | None = None,
        around: StepLengths | None = None,
        names: Mapping[Variable, str] = MappingProxyType({}),
    ) -> None:
        self._lengths = lengths or Lengths()
        self._around = around
        self._names = names
        self._told: dict[Atom, AffineExpr] = {}
        # What feeds an inner input, and the number of the axes that the loop takes from it.
        self._sources: dict[Variable, tuple[Variable, int]] = {}
        for slot in view.slots:
            if slot.kind in _WITH_SOURCE:
                n_axes = view.batch_ndim + (slot.kind in _OF_ROWS)
                for variable in slot.inner_inputs:
                    self._sources[variable] = (slot.outer_input, n_axes)
        self._unchanged = {
            variable
            for slot in view.of_kind(*_WHOLE)
            for variable in slot.inner_inputs
            if not view.batch_ndim
        }

    def shape(self, variable: Any) -> list[AffineExpr]:
        """Return the lengths of the axes of a variable of the step."""
        axes = range(getattr(variable.type, "ndim", 0))
        return [self.told(self._lengths.length_of(variable, axis)) for axis in axes]

    def value_of(self, variable: Variable) -> AffineExpr:
        """Return the number that a variable of the step holds.

        It is told by what is outside, unless that is not known of a number in it.
        """
        value = self._lengths.value_of(variable)
        is_known = all(atom.axis is not None or self._is_told(atom) for atom in value.atoms)
        return self.told(value) if is_known else value

    def told(self, length: AffineExpr) -> AffineExpr:
        """Return an expression in variables of the step in those of the outermost graph."""
        known = as_affine(length.constant)
        return total((known, *(self._atom(atom).scaled(n) for atom, n in length.terms)))

    def _atom(self, atom: Atom) -> AffineExpr:
        if atom not in self._told:
            found = self._outside(atom) if self._is_told(atom) else None
            if found is None or len(found.terms) > _MOST_TERMS:
                text = self._names.get(atom.variable) or self._text(atom)
                found = AffineExpr.of(Atom(atom.variable.type(), atom.axis, text))
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
        return found if self._around is None else self._around.told(found)

    def _text(self, atom: Atom) -> str | None:
        if atom.axis is not None:
            return atom.text
        return minimum_text(atom.variable, self._part_text)

    def _part_text(self, part: Variable) -> str:
        value = self._lengths.value_of(part)
        is_minimum = any(minimum_parts(atom.variable) for atom in value.atoms)
        return "…" if is_minimum else str(self.told(value))
