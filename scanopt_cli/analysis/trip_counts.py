"""Which loops run equally often: step counts told by what they are, and made one variable."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Container, Hashable, Iterable, Iterator

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import toposort

from scanopt_cli.analysis.lengths import AffineExpr, Atom, Lengths
from scanopt_cli.analysis.minima import minimum_parts
from scanopt_cli.ir.scan_view import scan_op


class StepCounts:
    """Keys of whole numbers, trip counts and lengths: equal keys mean equal numbers.

    The key of a number is an affine expression, with its atoms by what they compute and minima by
    what they are the least of, in any order: ``scan`` makes another minimum of the lengths of its
    sequences in every call.

    Parameters
    ----------
    same
        Tells what a variable computes: equal for equal values only.
    loop_free
        The nodes that depend on no loop. What does depend on one is told by identity, so that
        `unify` never makes one loop depend on another.
    """

    def __init__(self, same: Callable[[Variable], Hashable], loop_free: Container[Apply]) -> None:
        self._same = same
        self._loop_free = loop_free
        self._lengths = Lengths()

    def of(self, count: Variable) -> Hashable:
        """Tell a step count, a scalar or one number for each entry of a batch."""
        form = self._lengths.value_of(count)
        if any(atom.axis is None and getattr(atom.variable.type, "ndim", 0) for atom in form.atoms):
            return self._told(count)  # another number in each entry: not a form in scalars
        return _form(form, self._atom)

    def of_form(self, form: AffineExpr) -> Hashable:
        """Tell a length that was read as an affine expression."""
        return _form(form, self._atom)

    def unify(self, fgraph: FunctionGraph, counts: Iterable[Variable], reason: str) -> None:
        """Let ``counts``, which have one key, be made of the same variables in all of ``fgraph``.

        A loop whose step count is replaced by an equal one is else no longer seen to have buffers
        as long as its steps. Of equal atoms the first in topological order takes the place of the
        others; as none of them depends on a loop, no path between loops is added.
        """
        lengths = Lengths()
        equal: dict[Hashable, dict[Variable, None]] = defaultdict(dict)
        for count in counts:
            for atom in lengths.value_of(count).atoms:
                equal[self._atom(atom), atom.variable.type][atom.variable] = None
        for variables in equal.values():
            if len(variables) > 1:
                places = {v: i for i, node in enumerate(toposort(variables)) for v in node.outputs}
                first, *others = sorted(variables, key=lambda v: places.get(v, -1))
                fgraph.replace_all([(other, first) for other in others], reason=reason)

    def _atom(self, atom: Atom) -> Hashable:
        if not self._is_loop_free(atom.variable):
            return atom
        if atom.axis is None and minimum_parts(atom.variable) is not None:
            parts = map(self._lengths.value_of, _least_of(atom.variable))
            return frozenset(_form(part, self._plain) for part in parts)
        return self._plain(atom)

    def _plain(self, atom: Atom) -> Hashable:
        return self._same(atom.variable), atom.axis

    def _told(self, variable: Variable) -> Hashable:
        return self._same(variable) if self._is_loop_free(variable) else variable

    def _is_loop_free(self, variable: Variable) -> bool:
        return variable.owner is None or variable.owner in self._loop_free


def loop_free(nodes: Iterable[Apply]) -> set[Apply]:
    """Return those of ``nodes``, which are in topological order, that depend on no loop."""
    found: set[Apply] = set()
    for node in nodes:
        owners = (variable.owner for variable in node.inputs)
        if scan_op(node) is None and all(owner is None or owner in found for owner in owners):
            found.add(node)
    return found


def _form(form: AffineExpr, told: Callable[[Atom], Hashable]) -> Hashable:
    counts: Counter[Hashable] = Counter()
    for atom, count in form.terms:
        counts[told(atom)] += count
    return form.constant, frozenset((key, count) for key, count in counts.items() if count)


def _least_of(variable: Variable) -> Iterator[Variable]:
    """The numbers that a tree of minima is the least of."""
    waiting, seen = [variable], set[Variable]()
    while waiting:
        part = waiting.pop()
        if part in seen:
            continue
        seen.add(part)
        smaller = minimum_parts(part)
        if smaller is None:
            yield part
        else:
            waiting += smaller
