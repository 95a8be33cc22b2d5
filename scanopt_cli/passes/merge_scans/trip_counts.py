"""Decides which loops have equal trip counts, and makes equal counts one expression."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Container, Hashable, Iterable

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import toposort, walk

from scanopt_cli.analysis.affine import AffineExpr, Atom
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.minima import minimum_parts
from scanopt_cli.ir.scan_view import is_loop


class StepCounts:
    """Computes keys of integers, trip counts and lengths: equal keys mean equal numbers.

    The key of a number is its affine expression, with each atom replaced by the key of what it
    computes, and each minimum by the set of its operands' keys: ``scan`` makes a new minimum of the
    lengths of its sequences in every call.

    Parameters
    ----------
    same
        Returns the key of what a variable computes: equal keys mean equal values.
    loop_free
        The nodes that depend on no loop. A variable that depends on one is compared by identity,
        so that `unified` never makes one loop depend on another.
    """

    def __init__(self, same: Callable[[Variable], Hashable], loop_free: Container[Apply]) -> None:
        self._same = same
        self._loop_free = loop_free
        self._lengths = Lengths()

    def of(self, count: Variable) -> Hashable:
        """Return the key of a trip count, a scalar or one number for each entry of a batch."""
        form = self._lengths.value_of(count)
        if any(atom.axis is None and getattr(atom.variable.type, "ndim", 0) for atom in form.atoms):
            # One number for each entry.
            return self._same(count) if self._is_loop_free(count) else count
        return self.of_form(form)

    def of_form(self, form: AffineExpr) -> Hashable:
        """Return the key of a length that was read as an affine expression."""
        return _form_key(form, self._atom_key)

    def unified(self, counts: Iterable[Variable]) -> dict[Variable, Variable]:
        """Map the equal atoms of ``counts``, which have one key, to one variable.

        Without this, a loop whose trip count is replaced by an equal one has buffers that are no
        longer provably as long as its steps. Of equal atoms, the first in topological order
        replaces the others. None of them depends on a loop, so no path between loops is added.
        """
        lengths = Lengths()
        equal: dict[Hashable, dict[Variable, None]] = defaultdict(dict)
        for count in counts:
            for atom in lengths.value_of(count).atoms:
                equal[self._atom_key(atom), atom.variable.type][atom.variable] = None
        replacements: dict[Variable, Variable] = {}
        for variables in equal.values():
            if len(variables) > 1:
                places = {v: i for i, node in enumerate(toposort(variables)) for v in node.outputs}
                first, *others = sorted(variables, key=lambda v: places.get(v, -1))
                replacements |= dict.fromkeys(others, first)
        return replacements

    def _atom_key(self, atom: Atom) -> Hashable:
        if not self._is_loop_free(atom.variable):
            return atom
        if atom.axis is None and minimum_parts(atom.variable) is not None:
            parts = walk([atom.variable], minimum_parts)
            forms = [self._lengths.value_of(v) for v in parts if minimum_parts(v) is None]
            return frozenset(_form_key(form, self._plain_key) for form in forms)
        return self._plain_key(atom)

    def _plain_key(self, atom: Atom) -> Hashable:
        return self._same(atom.variable), atom.axis

    def _is_loop_free(self, variable: Variable) -> bool:
        return variable.owner is None or variable.owner in self._loop_free


def loop_free(nodes: Iterable[Apply]) -> set[Apply]:
    """Return those of ``nodes``, which are in topological order, that depend on no loop."""
    found: set[Apply] = set()
    for node in nodes:
        owners = (variable.owner for variable in node.inputs)
        if not is_loop(node) and all(owner is None or owner in found for owner in owners):
            found.add(node)
    return found


def _form_key(form: AffineExpr, key_of: Callable[[Atom], Hashable]) -> Hashable:
    counts: Counter[Hashable] = Counter()
    for atom, count in form.terms:
        counts[key_of(atom)] += count
    return form.constant, frozenset((key, count) for key, count in counts.items() if count)
