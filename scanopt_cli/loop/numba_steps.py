"""The source of a step, for Numba: what is computed on arrays is kept in buffers of the loop.

An operation of PyTensor's allocates its result. In a loop that is a call of the allocator, and
counting of references, in each operation of each step, which take longer than arithmetic on a few
dozen entries. Here elementwise arithmetic and products write into arrays that the loop allocates
once:

- An elementwise operation is a *kernel*, a function with a loop over the entries. It reads the rows
  of arrays where they are, and never works in place.
- Each result has a buffer, which is allocated in the first step, and again if its shape changes.
  Results of one shape share a buffer if one is read for the last time before the other is computed.
- A state whose next value is such a result takes its buffer, and gives its own memory for the next
  step (double buffering).
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
from pytensor.scalar.basic import ScalarType
from pytensor.tensor.basic import TensorFromScalar
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.subtensor import Subtensor
from pytensor.tensor.type import DenseTensorType

from scanopt_cli.ir.indexing import indices_of, is_full_slice, number
from scanopt_cli.loop.memory import memory_of
from scanopt_cli.loop.numba_kernels import Array, Literal, Operand, kernel
from scanopt_cli.loop.numba_products import matrices, matrix_by_vector
from scanopt_cli.loop.products import Product


# What `register_jitable` marks is compiled for the code that calls it, and stays Python for Python;
# a function that PyTensor's `numba_njit` compiles crashes if Python calls it.
@register_jitable
def _same_length(one: Any, other: Any) -> None:
    """Raise if the operands of an elementwise operation differ in length."""
    if one != other:
        raise ValueError("Incompatible shapes of the operands of an elementwise operation")


@register_jitable
def _row_at(index: Any, length: Any) -> Any:
    """Return the row at an index, which counts from the end if it is negative."""
    row = index + length if index < 0 else index
    if row < 0 or row >= length:
        raise IndexError("index out of bounds")
    return row


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
    _parts: dict[Variable, Array] = field(default_factory=dict)
    _numbers: dict[Variable, str] = field(default_factory=dict)
    _lengths_of: dict[Variable, Sequence[str]] = field(default_factory=dict)
    _kept: set[Variable] = field(default_factory=set)
    _fresh: set[Variable] = field(default_factory=set)
    _free: dict[object, list[str]] = field(default_factory=dict)
    _before: list[str] = field(default_factory=list)
    _step: list[str] = field(default_factory=list)
    _globals: dict[str, Any] = field(default_factory=lambda: dict(_NAMES))
    _keys: list[str | None] = field(default_factory=list)

    def write(self) -> StepCode:
        """Return the source."""
        self._names = dict(zip(self.body.inputs, self.inputs, strict=True))
        swapped = self._swapped_states()
        nodes = self.body.toposort()
        computed = set(self.body.outputs)
        for node in reversed(nodes):
            is_read_by_kernels = _is_number(node) and computed.isdisjoint(node.outputs)
            if not _is_kernel(node) and not is_read_by_kernels:
                computed.update(node.inputs)
        released = self._last_reads(nodes)
        for node in nodes:
            is_read_by_kernels = computed.isdisjoint(node.outputs)
            if _is_number(node):
                source, output = node.inputs[0], node.outputs[0]
                self._numbers[output] = self._numbers.get(source) or self._name(source)
            if _is_kernel(node):
                self._add_kernel(node)
            elif isinstance(node.op, Product):
                self._add_product(node)
            elif not is_read_by_kernels or not (
                _is_number(node) or (_is_part(node) and self._add_part(node))
            ):
                self._add_call(node)
            for output in released.get(node, ()):
                self._free.setdefault(_form(output, self._lengths_of[output]), []).append(
                    self._name(output)
                )
        outputs = [self._name(v) for v in self.body.outputs]
        after = []
        for i, output in swapped.items():
            state = self.inputs[1 + i]
            # A buffer is contiguous, which the memory of a state has to be that takes its place.
            self._before.append(f"{state} = np.ascontiguousarray({state})")
            self._step.append(f"old_{state} = {state}")
            after.append(f"{self._name(output)} = old_{state}")
        key = None if None in self._keys else str(self._keys)
        return StepCode(self._before, self._step, outputs, after, self._globals, key)

    def _swapped_states(self) -> dict[int, Variable]:
        """Return the states that give their memory for the buffer of their next value.

        Another result that is kept in a state, as it is or as a part, gets new memory in each step.
        """
        states = self.body.inputs[1 : 1 + self.n_states]
        results = self.body.outputs[: self.n_states]
        kept = [memory_of(v, _has_buffer) for v in results]
        swapped = {
            i: result
            for i, result in enumerate(results)
            if kept[i] is result and _has_buffer(result.owner) and states[i] not in kept
        }
        self._kept = set(kept)
        self._fresh = set(kept) - set(swapped.values())
        return swapped

    def _last_reads(self, nodes: Sequence[Apply]) -> dict[Apply, list[Variable]]:
        """Return for each node the buffers that no later node reads, and no output is."""
        last: dict[Variable, Apply] = {}
        for node in nodes:
            last |= {memory_of(v, _has_buffer): node for v in node.inputs}
        kept = {memory_of(v, _has_buffer) for v in self.body.outputs} | self._kept
        found: dict[Apply, list[Variable]] = {}
        for memory, node in last.items():
            if _has_buffer(memory.owner) and memory not in kept:
                found.setdefault(node, []).append(memory)
        return found

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

    def _add_part(self, node: Apply) -> bool:
        """Let kernels read a part of an array where it is."""
        array = node.inputs[0]
        if not isinstance(array.type, DenseTensorType) or array in self._parts:
            return False
        name, indices = self._name(array), indices_of(node)
        places: list[Any] = [None] * array.type.ndim
        for axis, index in enumerate(indices):
            place, length = f"row_{len(self._step)}", f"{name}.shape[{axis}]"
            if is_full_slice(index):
                continue
            if isinstance(index, slice):
                start = "0" if index.start is None else self._name(index.start)
                stop = length if index.stop is None else self._name(index.stop)
                self._step.append(f"{place}, end_{place} = bounds_at({start}, {stop}, {length})")
                places[axis] = place, f"end_{place}"
            else:
                self._step.append(f"{place} = row_at({self._name(index)}, {length})")
                places[axis] = place
        self._parts[node.outputs[0]] = Array(name, tuple(places))
        return True

    def _operand(self, variable: Any) -> Operand:
        if isinstance(variable, Constant) and variable.data.size == 1:
            return Literal(variable.data.reshape(())[()])
        if variable in self._numbers:
            return self._numbers[variable]
        return self._array(variable)

    def _array(self, variable: Any) -> Array:
        whole = (None,) * variable.type.ndim
        return self._parts.get(variable) or Array(self._name(variable), whole)

    def _length(self, variable: Any, axis: int) -> str:
        """Return the source of a length, which of equal lengths is the same where that is known."""
        lengths = self._lengths_of.get(variable)
        return self._array(variable).length(axis) if lengths is None else lengths[axis]

    def _add_buffer(self, output: Any, lengths: Sequence[str]) -> str:
        """Give a result memory of some lengths."""
        self._lengths_of[output] = lengths
        free = self._free.get(_form(output, lengths))
        if free and output not in self._kept:
            self._names[output] = free.pop()
            return self._names[output]
        name = self._name(output)
        dtype = "bool_" if output.type.dtype == "bool" else output.type.dtype
        allocated = f"{name} = np.empty(({', '.join(lengths)},), np.{dtype})"
        if output in self._fresh:
            self._step.append(allocated)
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
        lengths = self._lengths(node)
        results = [self._add_buffer(output, lengths) for output in node.outputs]
        operands = [self._operand(v) for v in node.inputs]
        self._call(*kernel(node, results, operands, self.memo))

    def _lengths(self, node: Apply) -> list[str]:
        """Return the source of the lengths of a result, and check that the operands have them."""
        found = []
        for axis in range(node.outputs[0].type.ndim):
            operands = [v for v in node.inputs if v.type.shape[axis] != 1]
            known = {v.type.shape[axis] for v in operands}
            sources = dict.fromkeys(self._length(v, axis) for v in operands)
            first, *others = sources or ["1"]
            if len(known) > 1 or None in known:
                self._step += [f"same_length({first}, {other})" for other in others]
            found.append(first)
        return found


def _form(result: Any, lengths: Sequence[str]) -> object:
    """Return what results have in common that may share a buffer: a dtype, and lengths."""
    shape = result.type.shape
    return result.type.dtype, tuple(lengths) if None in shape else shape


def _has_buffer(node: Apply | None) -> bool:
    """Whether a step computes what a node computes in memory of its own."""
    return node is not None and (_is_kernel(node) or isinstance(node.op, Product))


def _is_kernel(node: Apply) -> bool:
    return (
        isinstance(node.op, Elemwise)
        and node.outputs[0].type.ndim > 0
        and all(isinstance(v.type, DenseTensorType) for v in (*node.inputs, *node.outputs))
    )


def _is_number(node: Apply) -> bool:
    """Whether a node makes an array of one number, or gives such an array dimensions."""
    if isinstance(node.op, DimShuffle):
        (source,) = node.inputs
        return source.owner is not None and _is_number(source.owner)
    return isinstance(node.op, TensorFromScalar)


def _is_part(node: Apply) -> bool:
    """Whether a node takes rows of an array, one or those from one to another."""
    return (
        isinstance(node.op, Subtensor)
        and isinstance(node.outputs[0].type, DenseTensorType)
        and node.outputs[0].type.ndim > 0
        and all(
            all(bound is None or _is_signed(bound) for bound in (index.start, index.stop))
            and number(index.step, 1) == 1
            if isinstance(index, slice)
            else _is_signed(index)
            for index in indices_of(node)
        )
    )


def _is_signed(index: Any) -> bool:
    return isinstance(index, Variable) and (
        isinstance(index.type, ScalarType) and index.type.dtype.startswith("int")
    )
