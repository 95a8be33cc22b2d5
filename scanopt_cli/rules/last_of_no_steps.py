"""C002: the last row of a loop that may have no steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from operator import or_
from typing import ClassVar

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import AbstractFunctionGraph
from pytensor.tensor.subtensor import IncSubtensor

from scanopt_cli.analysis.accesses.accesses import accesses_of_outputs
from scanopt_cli.analysis.accesses.indices import indices_from
from scanopt_cli.analysis.affine import ZERO, as_affine
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.named_loops import NamedLoop
from scanopt_cli.ir.slots import STATES
from scanopt_cli.passes.of_scans.guard_last_rows import is_last_of_steps
from scanopt_cli.remarks import Code, Remark, Why
from scanopt_cli.rules.rule_contract import Fix, PassRule, Severity, named


class LastOfNoSteps(PassRule):
    """The last row is read of a loop that may have no steps, where PyTensor returns another value.

    Of a loop of no steps, ``ys[-1]`` is an IndexError. When PyTensor compiles, it lets a state keep
    one row, and returns the initial value; Numba reads what is no row of an output::

        ys = scan(step, outputs_info=[x], n_steps=n)
        pytensor.function([x, n], ys[-1])(1.0, 0)  # 1.0, not an IndexError

    The fix writes a check beside the row. A constant ``n_steps``, or sequences of static length,
    make it needless. Where the gradient of that row is computed, too, PyTensor keeps the error.
    """

    code: ClassVar[str] = "C002"
    name: ClassVar[str] = "last-of-no-steps"
    severity: ClassVar[Severity] = Severity.NOTE
    fix: ClassVar[Fix] = Fix("guard-last-rows")
    costs_buffers: ClassVar[bool] = False
    codes: ClassVar[frozenset[str]] = frozenset({Code.LAST_GUARDED})

    def __init__(self) -> None:
        # Of each graph, what is found once for all its loops.
        self._writes: dict[int, _RowWrites] = {}

    def text(self, remarks: Sequence[Remark]) -> str:
        """Return the text of the finding."""
        what = f"the last row of {named(remarks)} is read"
        return f"{what}, and there may be no step: compiled, that raises no IndexError"

    def proved(self, loop: NamedLoop, remarks: Sequence[Remark]) -> Sequence[Remark]:
        """Return the remarks on rows of which PyTensor loses the error.

        It keeps that of a row of a map, which it computes without a loop, and of a loop whose last
        row is written, too. To read no row as an array of no rows is no error.
        """
        writes = self._writes.get(id(loop.graph))
        if writes is None:
            writes = self._writes[id(loop.graph)] = _RowWrites(loop.graph)
        lengths = Lengths(loop.view.n_steps)
        if writes.write_last_of(loop.view.n_steps, lengths):
            return []
        accesses = accesses_of_outputs(loop.view, loop.clients)
        is_map = loop.view.is_while or not loop.view.of_kind(*STATES)
        lost = {
            loop.names[slot]
            for slot, reads in accesses.items()
            if slot.kind in STATES or not is_map
            for access in reads
            if access.index is not None
            and not access.index.is_slice
            and is_last_of_steps(access, loop.view, lengths)  # type: ignore[arg-type]
        }
        kept = [replace(r, slots=tuple(s for s in r.slots if s in lost)) for r in remarks]
        return [remark for remark in kept if remark.slots]

    def doubt(self, remark: Remark) -> str | None:
        """Return the text for a last row of a buffer that may not hold every step."""
        if remark.code is not Code.LAST_UNGUARDED or remark.reason is None:
            return None
        if remark.reason.code != Why.BUFFERS_NOT_WHOLE:
            return None
        return (
            f"the last row of {named([remark])} is read: if it keeps every step, and there is "
            "none, compiled that raises no IndexError"
        )


class _RowWrites:
    """The nodes of a graph that write one row of an array.

    A length depends on what the array is computed from. So of a loop, only those nodes are looked
    at that depend on all that its number of steps depends on.
    """

    def __init__(self, graph: AbstractFunctionGraph) -> None:
        order = graph.toposort()
        self._nodes = [node for node in order if _writes_row(node)]
        # Of each variable, a bit for each of these nodes whose array depends on it.
        self._dependent: dict[Variable, int] = defaultdict(int)
        for bit, node in enumerate(self._nodes):
            self._dependent[node.inputs[0]] |= 1 << bit
        for node in reversed(order):
            found = reduce(or_, (self._dependent.get(v, 0) for v in node.outputs), 0)
            for variable in node.inputs if found else ():
                self._dependent[variable] |= found
        self._known: dict[Variable, bool] = {}

    def write_last_of(self, n_steps: Variable, lengths: Lengths) -> bool:
        """Whether any writes the last row of an array that has one for each of so many steps."""
        known = self._known.get(n_steps)
        if known is None:
            asked = (1 << len(self._nodes)) - 1
            for atom in lengths.steps.atoms:
                asked &= self._dependent.get(atom.variable, 0)
            nodes = (node for bit, node in enumerate(self._nodes) if asked >> bit & 1)
            known = self._known[n_steps] = any(_writes_last(node, lengths) for node in nodes)
        return known


def _writes_row(node: Apply) -> bool:
    if not isinstance(node.op, IncSubtensor):
        return False
    indices = indices_from(node, 0)
    return bool(indices) and not isinstance(indices[0], slice)


def _writes_last(node: Apply, lengths: Lengths) -> bool:
    """Whether a node writes the last of as many rows as a loop has steps, or the first."""
    indices = indices_from(node, 0)
    length = lengths.length_of(node.inputs[0])
    if length != lengths.steps:
        return False
    return lengths.value_of(indices[0]) in (as_affine(-1), ZERO, length - 1)
