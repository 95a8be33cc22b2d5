"""A loop, and one that runs its steps from the last to the first."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import chain
from typing import Any

from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import io_toposort
from pytensor.tensor.basic import MakeVector
from pytensor.tensor.math import Dot
from pytensor.tensor.subtensor import Subtensor
from pytensor.tensor.type import DenseTensorType, TensorType

from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.ir.slots import Slot, SlotKind
from scanopt_cli.loop.costs import is_costly
from scanopt_cli.loop.operator_base import LoopView
from scanopt_cli.passes.keep_values.sources import Sources
from scanopt_cli.passes.keep_values.value_numbers import ValueNumbers, dimensions

_TOGETHER = -1
"""In place of a number: the vector of all numbers without dimensions that a step keeps."""


class LoopPair:
    """A loop, and one that undoes its steps, from the last to the first.

    Attributes
    ----------
    kept
        By their numbers, the values of a forward step that the forward loop is to trace.
    """

    def __init__(self, forward: LoopView, backward: LoopView, lengths: Lengths) -> None:
        self._forward, self._backward = forward, backward
        forward.unfreeze()
        backward.unfreeze()
        self._sources = Sources(forward, backward, lengths)
        self._values = ValueNumbers()
        self._numbers: dict[Variable, int] = {}
        nodes = list(io_toposort([], forward.inner_outputs()))
        for part in (nodes, io_toposort([], backward.inner_outputs())):
            for node in part:
                for variable in chain(node.inputs, node.outputs):
                    if variable not in self._numbers:
                        self._numbers[variable] = self._number(variable)
        computed = self._computed(nodes)
        self._replaced = self._wanted(computed)
        self.kept = {number: computed[number] for number in self._replaced.values()}

    def _number(self, variable: Any) -> int:
        """Return the number of a variable, whose operands have theirs."""
        values, node = self._values, variable.owner
        if not isinstance(variable.type, DenseTensorType):
            return values.given(variable)
        if isinstance(variable, Constant):
            return values.literal(variable)
        if node is None or isinstance(node.op, Subtensor):
            return values.given(self._sources.of(variable), len(dimensions(variable)))
        found = values.computed(variable, [self._numbers[v] for v in node.inputs])
        return values.given(variable) if found is None else found

    def _computed(self, nodes: Iterable[Apply]) -> dict[int, Variable]:
        """Return what takes long in a step of the forward loop, each value once."""
        found: dict[int, Variable] = {}
        for node in nodes:
            for output in node.outputs:
                if _takes_long(output):
                    found.setdefault(self._numbers[output], output)
        return found

    def _wanted(self, computed: Collection[int]) -> dict[Variable, int]:
        """Return what takes long in a step of the backward loop, and was computed before."""
        found: dict[Variable, int] = {}
        seen: set[Variable] = set()
        waiting = self._backward.inner_outputs()
        while waiting:
            variable = waiting.pop()
            if variable in seen or variable.owner is None:
                continue
            seen.add(variable)
            if self._numbers[variable] in computed and _takes_long(variable):
                found[variable] = self._numbers[variable]
            else:
                waiting += variable.owner.inputs
        return found

    def rewritten(self) -> dict[Variable, Variable]:
        """Return replacements: the forward loop traces the values, the backward one reads them."""
        kept = {number: _without_units(value) for number, value in self.kept.items()}
        scalars = [number for number, value in kept.items() if not value.type.ndim]
        rows: dict[int, Any] = {number: v for number, v in kept.items() if v.type.ndim}
        if scalars:
            # One trace of a vector takes less time than one of each.
            rows[_TOGETHER] = MakeVector("float64")(*(kept[number] for number in scalars))
        traces = {number: self._traced(row) for number, row in rows.items()}
        replaced = self._forward.rebuild()
        (j,) = next(iter(self._backward.of_kind(SlotKind.INDEX))).inner_inputs
        read: dict[int, Any] = {
            number: self._reversed(replaced.pop(trace))[j] for number, trace in traces.items()
        }
        read |= {number: read[_TOGETHER][i] for i, number in enumerate(scalars)}
        reads = {old: _like(old, read[number]) for old, number in self._replaced.items()}
        results = graph_replace(self._backward.inner_outputs(), reads, strict=False)
        self._backward.set_inner_outputs(results)
        # The backward loop first: its operands are then those of the new forward loop.
        return self._backward.rebuild() | replaced

    def _traced(self, row: Variable) -> Variable:
        """Let the forward loop trace a value."""
        kind: Any = row.type
        trace: Variable = TensorType(kind.dtype, shape=(None, *kind.shape))()
        n_steps = self._forward.n_steps
        slot = Slot(SlotKind.TRACED, -1, (), (0,), [], [row], trace, outer_input=n_steps)
        self._forward.slots.append(slot)
        return trace

    def _reversed(self, trace: Any) -> Any:
        """Let the backward loop read the rows of a trace, the last one first."""
        return self._backward.add_input(SlotKind.CONSTANT, trace.type(), trace[::-1])


def _takes_long(variable: Any) -> bool:
    """Whether a value is computed by a function that takes longer than to read it."""
    op: Any = variable.owner_op
    if not isinstance(variable.type, DenseTensorType) or variable.type.dtype != "float64":
        return False
    return is_costly(op) or isinstance(op, Dot)


def _without_units(value: Any) -> Any:
    """Return an array without its dimensions of one entry."""
    kept = dimensions(value)
    return value if len(kept) == value.type.ndim else value.dimshuffle(kept)


def _like(old: Any, new: Any) -> Any:
    """Return an array with the dimensions of one entry that ``old`` has."""
    places = {axis: i for i, axis in enumerate(dimensions(old))}
    whole = new.dimshuffle([places.get(i, "x") for i in range(old.type.ndim)])
    return old.type.filter_variable(whole, allow_convert=True)
