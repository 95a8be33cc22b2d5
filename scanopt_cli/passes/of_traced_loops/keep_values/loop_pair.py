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
from pytensor.tensor.type import DenseTensorType

from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.ir.slots import Slot, SlotKind
from scanopt_cli.loop.costs import is_costly
from scanopt_cli.loop.operator_base import LoopView
from scanopt_cli.loop.trace_rows import trace_type
from scanopt_cli.passes.of_traced_loops.keep_values.sources import Sources
from scanopt_cli.passes.of_traced_loops.keep_values.value_numbers import ValueNumbers, non_unit_axes


class LoopPair:
    """A forward loop, and the backward loop that undoes its steps, from the last to the first.

    It views both nodes anew, and changes these views.

    Attributes
    ----------
    kept
        The values of a forward step that the forward loop is to trace, by their value numbers.
    """

    def __init__(self, forward_node: Apply, backward_node: Apply, lengths: Lengths) -> None:
        self._forward = forward = LoopView.of(forward_node)
        self._backward = backward = LoopView.of(backward_node)
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
        expensive = self._expensive(nodes)
        self._recomputed = self._outermost(expensive)
        self.kept = {number: expensive[number] for number in self._recomputed.values()}

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

    def _expensive(self, nodes: Iterable[Apply]) -> dict[int, Variable]:
        """Return the expensive values of a step of the forward loop, by their value numbers."""
        found: dict[int, Variable] = {}
        for node in nodes:
            for output in node.outputs:
                if _is_expensive(output):
                    found.setdefault(self._numbers[output], output)
        return found

    def _outermost(self, numbers: Collection[int]) -> dict[Variable, int]:
        """Return the outermost expensive values of a backward step that have one of ``numbers``."""
        found: dict[Variable, int] = {}
        seen: set[Variable] = set()
        waiting = self._backward.inner_outputs()
        while waiting:
            variable = waiting.pop()
            if variable in seen or variable.owner is None:
                continue
            seen.add(variable)
            if self._numbers[variable] in numbers and _is_expensive(variable):
                found[variable] = self._numbers[variable]
            else:
                waiting += variable.owner.inputs
        return found

    def rewritten(self) -> dict[Variable, Variable]:
        """Return replacements: the forward loop traces the values, the backward one reads them."""
        row_of = {number: _without_units(value) for number, value in self.kept.items()}
        scalars = [number for number, row in row_of.items() if not row.type.ndim]
        traces = {n: self._traced(row) for n, row in row_of.items() if row.type.ndim}
        # One trace of a vector takes less time than one of each scalar.
        vector: Any = MakeVector("float64")(*(row_of[n] for n in scalars)) if scalars else None
        scalar_trace = None if vector is None else self._traced(vector)
        # The variables that stand for the new traces are replaced as well.
        replacements = self._forward.rebuild()
        read = {n: self._row_read(replacements.pop(trace)) for n, trace in traces.items()}
        if scalar_trace is not None:
            together = self._row_read(replacements.pop(scalar_trace))
            read |= {number: together[i] for i, number in enumerate(scalars)}
        reads = {old: _like(old, read[number]) for old, number in self._recomputed.items()}
        results = graph_replace(self._backward.inner_outputs(), reads, strict=False)
        self._backward.set_inner_outputs(results)
        # The backward loop first: its operands are then those of the new forward loop.
        return self._backward.rebuild() | replacements

    def _traced(self, row: Variable) -> Variable:
        """Let the forward loop trace a value, and return what stands for the trace."""
        trace: Variable = trace_type(row.type)()
        slot = Slot.of_trace(row, self._forward.n_steps, trace, kind=SlotKind.TRACED)
        self._forward.slots.append(slot)
        return trace

    def _row_read(self, trace: Any) -> Any:
        """Let the backward loop read the rows of a trace, the last one first; return the row."""
        rows: Any = self._backward.add_input(SlotKind.CONSTANT, trace.type(), trace[::-1])
        return rows[self._backward.index]


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
