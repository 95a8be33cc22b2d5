"""A loop, and one that runs its steps from the last to the first."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import chain
from typing import Any

from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import io_toposort
from pytensor.tensor.basic import MakeVector, ScalarFromTensor
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.math import Dot
from pytensor.tensor.subtensor import Subtensor
from pytensor.tensor.type import DenseTensorType

from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.matrix_ops import MATRIX_OPS
from scanopt_cli.ir.indexing import indices_of
from scanopt_cli.ir.inner_graphs import core_op
from scanopt_cli.ir.slots import Slot, SlotKind
from scanopt_cli.loop.costs import is_costly
from scanopt_cli.loop.operator_base import LoopView
from scanopt_cli.loop.trace_rows import trace_type
from scanopt_cli.passes.of_traced_loops.keep_values.sources import Index, Source, Sources
from scanopt_cli.passes.of_traced_loops.keep_values.value_numbers import ValueNumbers, non_unit_axes


class LoopPair:
    """A forward loop, and the backward loop that undoes its steps, from the last to the first.

    It views both nodes anew, and changes these views. Others than the backward loop read the traces
    ``read_by_others``, too.

    Attributes
    ----------
    kept
        The values of a forward step that the forward loop is to trace, by their value numbers.
    """

    def __init__(
        self,
        forward_node: Apply,
        backward_node: Apply,
        lengths: Lengths,
        read_by_others: Collection[Variable],
    ) -> None:
        self._forward = forward = LoopView.of(forward_node)
        self._backward = backward = LoopView.of(backward_node)
        forward.unfreeze()
        backward.unfreeze()
        self._sources = Sources(forward, backward, lengths)
        self._values = ValueNumbers()
        self._rows: dict[int, int] = {}
        """By the value number of an entry: that of the row that it is picked from."""
        self._numbers: dict[Variable, int] = {}
        nodes = list(io_toposort([], forward.inner_outputs()))
        for part in (nodes, io_toposort([], backward.inner_outputs())):
            for node in part:
                for variable in chain(node.inputs, node.outputs):
                    if variable not in self._numbers:
                        self._numbers[variable] = self._value_number(variable)
        arrays = [s for s in forward.of_kind(SlotKind.STATE) if s.inner_inputs[0].type.ndim]
        self._traces = {
            self._numbers[slot.inner_inputs[0]]: slot.output
            for slot in arrays
            if slot.inner_inputs[0] in self._numbers and slot.output not in read_by_others
        }
        values = self._worth_keeping(nodes)
        self._recomputed = self._outermost(values)
        self._leave_traces_that_are_read(values)
        self.kept = {number: values[number] for number in self._recomputed.values()}

    def _value_number(self, variable: Any) -> int:
        """Return the value number of a variable, whose operands have theirs."""
        values, node = self._values, variable.owner
        if not isinstance(variable.type, DenseTensorType):
            return values.opaque(variable)
        if isinstance(variable, Constant):
            return values.literal(variable)
        if node is None or isinstance(node.op, Subtensor):
            source = self._sources.of(variable)
            picked = self._picked(node) if node and source == Source(variable) else None
            if picked is not None:
                return picked
            number = values.opaque(source, len(non_unit_axes(variable)))
            if node is not None and len(source.index) > 1:
                self._rows[number] = self._row(source.array, source.index[:1])
            return number
        found = values.computed(variable, [self._numbers[v] for v in node.inputs])
        return values.opaque(variable) if found is None else found

    def _picked(self, node: Apply) -> int | None:
        """Return the number of an entry of a row, at indices that a step reads or computes."""
        array, indices = node.inputs[0], indices_of(node)
        row = self._sources.known(indices)
        operands = [self._numbers.get(_tensor_of(v)) for v in indices[len(row) :]]
        if None in operands:
            return None
        whole = self._row(array, row)
        number = self._values.opaque("entry", whole, *operands)
        self._rows[number] = whole
        return number

    def _row(self, array: Any, index: Index) -> int:
        """Return the number of what is at the first indices of an array."""
        axes = [n for n in array.type.shape[len(index) :] if n != 1]
        return self._values.opaque(self._sources.of(array, index), len(axes))

    def _worth_keeping(self, nodes: Iterable[Apply]) -> dict[int, Variable]:
        """Return what a step of the forward loop computes, by value number, if it may be kept.

        That is what is expensive, and the entries of states that are arrays.
        """
        found: dict[int, Variable] = {}
        for node in nodes:
            for output in node.outputs:
                number = self._numbers[output]
                if _is_expensive(output) or (
                    _is_entry(output) and self._trace_of(number) is not None
                ):
                    found.setdefault(number, output)
        return found

    def _trace_of(self, number: int) -> Variable | None:
        """Return the trace of the state of which a value number is an entry, if it may go."""
        return self._traces.get(self._rows.get(number, -1))

    def _outermost(self, numbers: Collection[int]) -> dict[Variable, int]:
        """Return the outermost values of a backward step that have one of ``numbers``."""
        found: dict[Variable, int] = {}
        for variable in self._read(()):
            # Only what a node computes, or reads, has a number: a step may return an input.
            is_computed = _is_expensive(variable) or _is_entry(variable)
            if is_computed and self._numbers[variable] in numbers:
                found[variable] = self._numbers[variable]
        return {v: found[v] for v in self._read(found) if v in found}

    def _read(self, instead: Collection[Variable]) -> Iterator[Variable]:
        """Yield what a backward step computes and reads, but not what is behind some values."""
        seen: set[Variable] = set()
        waiting = self._backward.inner_outputs()
        while waiting:
            variable = waiting.pop()
            if variable in seen:
                continue
            seen.add(variable)
            yield variable
            if variable.owner is not None and variable not in instead:
                waiting += variable.owner.inputs

    def _leave_traces_that_are_read(self, values: dict[int, Variable]) -> None:
        """Keep no entry of a state whose trace the backward loop reads otherwise, too.

        Then the trace stays, and an entry of it is read as fast as one that was kept.
        """
        traces = ((number, self._trace_of(number)) for number in values)
        entries = {number: trace for number, trace in traces if trace is not None}
        while True:
            read = {whole(v) for v in self._inputs_read()}
            left = {number for number, trace in entries.items() if trace in read}
            if not left & set(self._recomputed.values()):
                return
            for number in left:
                del values[number], entries[number]
            self._recomputed = self._outermost(values)

    def _inputs_read(self) -> Iterator[Variable]:
        """Yield the arrays outside that a backward step reads, other than by what is kept."""
        read = set(self._read(self._recomputed))
        for slot in self._backward.of_kind(SlotKind.CONSTANT):
            if slot.inner_inputs[0] in read:
                yield slot.outer_input

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
    return op is not None and (is_costly(op) or isinstance(core_op(op), (Dot, *MATRIX_OPS)))


def _is_entry(variable: Any) -> bool:
    """Whether a value is a number that is read from an array."""
    is_number = isinstance(variable.type, DenseTensorType) and not variable.type.ndim
    return (
        is_number and variable.type.dtype == "float64" and isinstance(variable.owner_op, Subtensor)
    )


def _tensor_of(index: Any) -> Any:
    """Return the tensor of which an index is a scalar, else the index."""
    is_scalar = isinstance(index, Variable) and isinstance(index.owner_op, ScalarFromTensor)
    return index.owner.inputs[0] if is_scalar else index


def whole(array: Any) -> Variable:
    """Return the array of which another one is a part."""
    while isinstance(array.owner_op, DimShuffle | Subtensor):
        array = array.owner.inputs[0]
    found: Variable = array
    return found


def _without_units(value: Any) -> Any:
    """Return an array without its axes of length 1."""
    kept = non_unit_axes(value)
    return value if len(kept) == value.type.ndim else value.dimshuffle(kept)


def _like(old: Any, new: Any) -> Any:
    """Return an array with the axes of length 1 that ``old`` has."""
    positions = {axis: i for i, axis in enumerate(non_unit_axes(old))}
    whole = new.dimshuffle([positions.get(i, "x") for i in range(old.type.ndim)])
    return old.type.filter_variable(whole, allow_convert=True)
