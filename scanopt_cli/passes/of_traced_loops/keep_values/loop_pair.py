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
from scanopt_cli.passes.of_traced_loops.keep_values.sources import Sources
from scanopt_cli.passes.of_traced_loops.keep_values.value_numbers import ValueNumbers, non_unit_axes

_SCALARS = -1
"""The key, in place of a value number, of all kept scalars of a step, which are one vector."""


class LoopPair:
    """A forward loop, and the backward loop that undoes its steps, from the last to the first.

    Attributes
    ----------
    kept
        The values of a forward step that the forward loop is to trace, by their value numbers.
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
                        self._numbers[variable] = self._value_number(variable)
        computed = self._computed(nodes)
        self._recomputed = self._wanted(computed)
        self.kept = {number: computed[number] for number in self._recomputed.values()}

    def _value_number(self, variable: Any) -> int:
        """Return the value number of a variable, whose operands have theirs."""
        values, node = self._values, variable.owner
        if not isinstance(variable.type, DenseTensorType):
            return values.opaque(variable)
        if isinstance(variable, Constant):
            return values.literal(variable)
        if node is None or isinstance(node.op, Subtensor):
            return values.opaque(self._sources.of(variable), len(non_unit_axes(variable)))
        found = values.computed(variable, [self._numbers[v] for v in node.inputs])
        return values.opaque(variable) if found is None else found

    def _computed(self, nodes: Iterable[Apply]) -> dict[int, Variable]:
        """Return the expensive values of a step of the forward loop, by their value numbers."""
        found: dict[int, Variable] = {}
        for node in nodes:
            for output in node.outputs:
                if _is_expensive(output):
                    found.setdefault(self._numbers[output], output)
        return found

    def _wanted(self, computed: Collection[int]) -> dict[Variable, int]:
        """Return the outermost values of a backward step that the forward step has ``computed``."""
        found: dict[Variable, int] = {}
        seen: set[Variable] = set()
        waiting = self._backward.inner_outputs()
        while waiting:
            variable = waiting.pop()
            if variable in seen or variable.owner is None:
                continue
            seen.add(variable)
            if self._numbers[variable] in computed and _is_expensive(variable):
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
            rows[_SCALARS] = MakeVector("float64")(*(kept[number] for number in scalars))
        traces = {number: self._traced(row) for number, row in rows.items()}
        replacements = self._forward.rebuild()
        (j,) = next(iter(self._backward.of_kind(SlotKind.INDEX))).inner_inputs
        read: dict[int, Any] = {
            number: self._reversed(replacements.pop(trace))[j] for number, trace in traces.items()
        }
        read |= {number: read[_SCALARS][i] for i, number in enumerate(scalars)}
        reads = {old: _like(old, read[number]) for old, number in self._recomputed.items()}
        results = graph_replace(self._backward.inner_outputs(), reads, strict=False)
        self._backward.set_inner_outputs(results)
        # The backward loop first: its operands are then those of the new forward loop.
        return self._backward.rebuild() | replacements

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


def _is_expensive(variable: Any) -> bool:
    """Whether computing a value takes longer than reading it."""
    op: Any = variable.owner_op
    if not isinstance(variable.type, DenseTensorType) or variable.type.dtype != "float64":
        return False
    return is_costly(op) or isinstance(op, Dot)


def _without_units(value: Any) -> Any:
    """Return an array without its axes of length 1."""
    kept = non_unit_axes(value)
    return value if len(kept) == value.type.ndim else value.dimshuffle(kept)


def _like(old: Any, new: Any) -> Any:
    """Return an array with the axes of length 1 that ``old`` has."""
    positions = {axis: i for i, axis in enumerate(non_unit_axes(old))}
    whole = new.dimshuffle([positions.get(i, "x") for i in range(old.type.ndim)])
    return old.type.filter_variable(whole, allow_convert=True)
