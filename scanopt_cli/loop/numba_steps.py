"""The source of a step, for Numba: what is computed on arrays is kept in buffers of the loop.

An operation of PyTensor's allocates its result. In a loop that is a call of the allocator, and
counting of references, in each operation of each step, which take longer than arithmetic on a few
dozen entries. Here elementwise arithmetic and products write into arrays that the loop allocates
once:

- An elementwise operation is a *kernel*, a function with a loop over the entries, and so is a sum
  or an extremum along some axes, or a write at indices. It reads parts of arrays where they are
  (`array_views`), adds up its results if a sum alone reads them, and, but for writes, never works
  in place. Lengths that are known stand in its code; that arrays have them is checked.
- Each result has a buffer, which is allocated in the first step, and again if its shape changes.
  Results of one shape share a buffer if one is read for the last time before the other is computed.
- A state whose next value is such a result takes its buffer, and gives its own memory for the next
  step (double buffering). If each entry is computed of that of the state, which nobody reads later,
  it is overwritten: half the memory stays in the caches.
- All other operations are called as PyTensor calls them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from numba.extending import register_jitable
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FrozenFunctionGraph
from pytensor.link.numba.dispatch import basic
from pytensor.tensor.subtensor import AdvancedIncSubtensor

from scanopt_cli.loop.array_views import (
    IndexedAxis,
    Picked,
    SlicedAxis,
    View,
    index_arrays,
    is_write,
    whole,
)
from scanopt_cli.loop.axis_reductions import is_reduction
from scanopt_cli.loop.numba_kernels import (
    Array,
    AxisSource,
    Literal,
    Operand,
    Result,
    kernel,
    writing_kernel,
)
from scanopt_cli.loop.numba_kernels import (
    row_at as _row_at,
)
from scanopt_cli.loop.numba_products import matrices, matrix_by_vector
from scanopt_cli.loop.products import Product
from scanopt_cli.loop.step_plan import StepPlan, is_kernel, is_number


# What `register_jitable` marks is compiled for the code that calls it, and stays Python for Python;
# a function that PyTensor's `numba_njit` compiles crashes if Python calls it.
@register_jitable
def _same_length(one: Any, other: Any) -> None:
    """Raise if the operands of an elementwise operation differ in length."""
    if one != other:
        raise ValueError("Incompatible shapes of the operands of an elementwise operation")


@register_jitable
def _bounds_at(start: Any, stop: Any, length: Any) -> Any:
    """Return the first row of a slice, and the one after the last, as Python counts them."""
    first = max(start + length, 0) if start < 0 else min(start, length)
    end = max(stop + length, 0) if stop < 0 else min(stop, length)
    return first, max(first, end)


_NAMES: dict[str, Any] = {
    "bounds_at": _bounds_at,
    "matrices": matrices,
    "matrix_by_vector": matrix_by_vector,
    "row_at": _row_at,
    "same_length": _same_length,
}


@dataclass(frozen=True, slots=True)
class StepCode:
    """The source of a step, in parts.

    Attributes
    ----------
    before
        What is done once, before the loop.
    step
        What computes the outputs of the body.
    outputs
        Their names, in their order.
    after
        What is done when the states have their next values.
    names
        What the source refers to.
    key
        The key of the functions and constants among these; ``None`` if one has none.
    """

    before: Sequence[str]
    step: Sequence[str]
    outputs: Sequence[str]
    after: Sequence[str]
    names: dict[str, Any]
    key: str | None


@dataclass(slots=True)
class StepWriter:
    """Writes the source of a step.

    Attributes
    ----------
    body
        The graph of the step: of the index, the states and the constants of the loop.
    inputs
        How the source calls these.
    n_states
        How many states there are, whose next values are the first outputs.
    memo
        What PyTensor's functions for Ops remember in one compilation.
    """

    body: FrozenFunctionGraph
    inputs: Sequence[str]
    n_states: int
    memo: Any
    _names: dict[Variable, str] = field(default_factory=dict)
    _plan: StepPlan = field(init=False)
    _parts: dict[Variable, Array] = field(default_factory=dict)
    _numbers: dict[Variable, str] = field(default_factory=dict)
    _lengths_of: dict[Variable, Sequence[str]] = field(default_factory=dict)
    _free: dict[object, list[str]] = field(default_factory=dict)
    _before: list[str] = field(default_factory=list)
    _step: list[str] = field(default_factory=list)
    _globals: dict[str, Any] = field(default_factory=lambda: dict(_NAMES))
    _keys: list[str | None] = field(default_factory=list)

    def write(self) -> StepCode:
        """Return the source."""
        self._names = dict(zip(self.body.inputs, self.inputs, strict=True))
        self._plan = plan = StepPlan(self.body, self.n_states)
        released = plan.last_reads()
        for node in plan.nodes:
            if is_number(node):
                source, output = node.inputs[0], node.outputs[0]
                self._numbers[output] = self._numbers.get(source) or self._name(source)
            if not plan.is_added_up(node) and not plan.is_read_in_place(node):
                self._add(node)
            for output in released.get(node, ()):
                self._free.setdefault(_form(output, self._lengths_of[output]), []).append(
                    self._name(output)
                )
        outputs = [self._name(v) for v in self.body.outputs]
        after = []
        for i, output in plan.swapped.items():
            state = self.inputs[1 + i]
            # A buffer is contiguous, which the memory of a state has to be that takes its place.
            self._before.append(f"{state} = np.ascontiguousarray({state})")
            if output in plan.overwriting:
                continue
            self._step.append(f"old_{state} = {state}")
            after.append(f"{self._name(output)} = old_{state}")
        key = None if None in self._keys else str(self._keys)
        return StepCode(self._before, self._step, outputs, after, self._globals, key)

    def _add(self, node: Apply) -> None:
        if is_kernel(node):
            self._add_kernel(node)
        elif isinstance(node.op, Product):
            self._add_product(node)
        elif isinstance(node.op, AdvancedIncSubtensor) and is_write(node):
            self._names[node.outputs[0]] = self._name(node.inputs[0])
            self._add_write(node, None)
        else:
            self._add_call(node)

    def _name(self, variable: Variable) -> str:
        if variable not in self._names:
            name = f"v{len(self._names)}"
            if isinstance(variable, Constant):
                value = basic.numba_typify(variable.data, variable=variable)
                self._add_global(name, value, basic.cache_key_for_constant(value))
            self._names[variable] = name
        return self._names[variable]

    def _add_global(self, name: str, value: Any, key: str | None) -> None:
        self._globals[name] = value
        self._keys.append(key and f"{name}: {key}")

    def _add_call(self, node: Apply) -> None:
        function, key = basic.numba_funcify_ensure_cache(node.op, node=node, ofg_memo=self.memo)
        self._call(function, key, map(self._name, node.inputs), map(self._name, node.outputs))

    def _call(
        self, function: Any, key: str | None, inputs: Iterable[str], outputs: Iterable[str] = ()
    ) -> None:
        name = f"f{len(self._keys)}"
        self._add_global(name, function, key)
        targets = ", ".join(outputs)
        self._step.append(f"{targets}{' = ' if targets else ''}{name}({', '.join(inputs)})")

    def _part(self, view: View) -> Array:
        """Return the source of a part of an array; write what finds the rows."""
        array: Any = view.array
        name, parts = self._name(array), []
        for k, dimension in enumerate(view.dimensions):
            length, row = self._length(array, k), f"row_{len(self._step)}"
            match dimension:
                case SlicedAxis(axis, _, _, True):
                    parts.append(AxisSource(axis, None, length))
                case SlicedAxis(axis, first, end):
                    start = "0" if first is None else self._name(first)
                    stop = length if end is None else self._name(end)
                    self._step.append(f"{row}, end_{row} = bounds_at({start}, {stop}, {length})")
                    parts.append(AxisSource(axis, row, f"(end_{row} - {row})"))
                case IndexedAxis(None):
                    if array.type.shape[k] != 1:
                        self._check_lengths("1", [length])
                    parts.append(AxisSource(None))
                case IndexedAxis(Variable() as index):
                    self._step.append(f"{row} = row_at({self._name(index)}, {length})")
                    parts.append(AxisSource(None, row))
                case Picked(axis, indices):
                    picked = self._part(indices)
                    parts.append(AxisSource(axis, None, picked.length(0), picked))
        return Array(name, tuple(parts))

    def _operand(self, variable: Any) -> Operand:
        if isinstance(variable, Constant) and variable.data.size == 1:
            return Literal(variable.data.reshape(())[()])
        if variable in self._numbers:
            return self._numbers[variable]
        return self._array(variable)

    def _array(self, variable: Any) -> Array:
        if variable not in self._parts:
            self._parts[variable] = self._part(self._plan.view(variable) or whole(variable))
        return self._parts[variable]

    def _length(self, variable: Any, axis: int) -> str:
        """Return the source of a length, which of equal lengths is the same where that is known."""
        known = self._lengths_of.get(variable)
        if known is not None:
            return known[axis]
        if self._plan.view(variable) is not None:
            return self._array(variable).length(axis)
        name, static = self._name(variable), variable.type.shape[axis]
        length = f"{name}.shape[{axis}]"
        if static is None or isinstance(variable, Constant):
            return length if static is None else str(static)
        # The loops of a kernel run to a length that is known, and read no further.
        check = f"same_length({length}, {static})"
        lines = self._before if self._is_checked_once(variable) else self._step
        if check not in lines:
            lines.append(check)
        return str(static)

    def _is_checked_once(self, variable: Variable) -> bool:
        """Whether an input has the same lengths in each step: a constant, or a swapped state."""
        if variable not in self.body.inputs:
            return False
        position = self.body.inputs.index(variable) - 1
        return position >= self.n_states or position in self._plan.swapped

    def _add_buffer(self, output: Any, lengths: Sequence[str]) -> str:
        """Find memory for a result of the given shape."""
        self._lengths_of[output] = lengths
        state = self._plan.overwriting.get(output)
        if state is not None:
            self._names[output] = self._name(state)
            return self._names[output]
        free = self._free.get(_form(output, lengths))
        if free and output not in self._plan.kept:
            self._names[output] = free.pop()
            return self._names[output]
        name = self._name(output)
        dtype = "bool_" if output.type.dtype == "bool" else output.type.dtype
        allocated = f"{name} = np.empty(({', '.join(lengths)},), np.{dtype})"
        if output in self._plan.fresh:
            self._step.append(allocated)
            return name
        if all(map(str.isdigit, lengths)):
            self._before.append(allocated)
            return name
        self._before.append(f"{name} = np.empty({(0,) * len(lengths)}, np.{dtype})")
        differs = " or ".join(f"{name}.shape[{i}] != {n}" for i, n in enumerate(lengths))
        self._step += [f"if {differs}:", f"    {allocated}"]
        return name

    def _add_product(self, node: Apply) -> None:
        left, right = map(self._name, node.inputs)
        left_ndim, right_ndim = (v.type.ndim for v in node.inputs)
        rows = [self._length(node.inputs[0], 0)] if left_ndim == 2 else []
        columns = [self._length(node.inputs[1], 1)] if right_ndim == 2 else []
        made = self._add_buffer(node.outputs[0], [*rows, *columns])
        if right_ndim == 1:
            self._step.append(f"matrix_by_vector({made}, {left}, {right})")
        elif left_ndim == 1:
            self._step.append(f"matrix_by_vector({made}, {right}.T, {left})")
        else:
            self._step.append(f"matrices({made}, {left}, {right})")

    def _add_kernel(self, node: Apply) -> None:
        if isinstance(node.op, AdvancedIncSubtensor):
            array = node.inputs[0]
            lengths = [self._length(array, axis) for axis in range(array.type.ndim)]
            before = self._array(array)
            self._add_buffer(node.outputs[0], lengths)
            self._add_write(node, before)
            return
        lengths = self._lengths(node)
        results = []
        for output in node.outputs:
            reduction = self._plan.reductions.get(output) or (node if is_reduction(node) else None)
            made = output if reduction is None else reduction.outputs[0]
            reduced = Result("", reduction).reduced(len(lengths))
            kept = [length for axis, length in enumerate(lengths) if axis not in reduced]
            results.append(Result(self._add_buffer(made, kept), reduction))
        operands = [self._operand(v) for v in node.inputs]
        self._call(*kernel(node, results, operands, lengths, self.memo))

    def _add_write(self, node: Apply, before: Array | None) -> None:
        """Write values where arrays of indices say: in a copy of ``before``, or in place."""
        array, value = node.inputs[:2]
        lengths = [self._length(array, axis) for axis in range(array.type.ndim)]
        result = self._name(node.outputs[0])
        indices = {k: self._array(v) for k, v in (index_arrays(node) or {}).items()}
        sources = [index.length(0) for index in indices.values()]
        self._check_lengths(sources[0], sources[1:])
        parts: list[AxisSource] = []
        picked: int | None = None
        entries: list[str] = []
        for k, length in enumerate(lengths):
            if k not in indices:
                parts.append(AxisSource(len(entries), None, length))
                entries.append(length)
                continue
            if picked is None:
                picked = len(entries)
                entries.append(sources[0])
            parts.append(AxisSource(picked, None, sources[0], indices[k]))
        shape = value.type.shape
        for axis, length in enumerate(entries):
            if shape[axis] != 1:
                self._check_lengths(length, [self._length(value, axis)])
        op: Any = node.op
        self._call(
            *writing_kernel(
                result,
                before,
                Array(result, tuple(parts)),
                self._operand(value),
                shape,
                lengths=lengths,
                n_entries=entries,
                adds=not op.set_instead_of_inc,
            )
        )

    def _check_lengths(self, first: str, others: Iterable[str]) -> None:
        """Write what raises an error unless lengths are equal."""
        differing = [other for other in dict.fromkeys(others) if other != first]
        self._step += [f"same_length({first}, {other})" for other in differing]

    def _lengths(self, node: Apply) -> list[str]:
        """Return the source of the lengths of a result, and check that the operands have them."""
        found = []
        for axis in range(node.inputs[0].type.ndim):
            operands = [v for v in node.inputs if v.type.shape[axis] != 1]
            sources = dict.fromkeys(self._length(v, axis) for v in operands)
            first, *others = sources or ["1"]
            # Several arrays of indices may pick the entries of one axis.
            views = [view for v in operands if (view := self._parts.get(v)) is not None]
            parts = [part for view in views for part in view.parts if part.axis == axis]
            picked = [part.length for part in parts if part.indices is not None]
            self._check_lengths(first, [*others, *picked])
            found.append(first)
        return found


def _form(result: Any, lengths: Sequence[str]) -> object:
    """Return what results have in common that may share a buffer: a dtype, and lengths."""
    shape = result.type.shape
    return result.type.dtype, tuple(lengths) if None in shape else shape
