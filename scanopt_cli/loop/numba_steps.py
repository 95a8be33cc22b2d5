"""The source of a step, for Numba: what is computed on arrays is kept in buffers of the loop.

An operation of PyTensor's allocates its result. In a loop that is a call of the allocator, and
counting of references, in each operation of each step, which take longer than arithmetic on a few
dozen entries. Here elementwise arithmetic and products write into arrays that the loop allocates
once:

- An elementwise operation is a *kernel*, a function with a loop over the entries. It reads the rows
  of arrays where they are, and never works in place.
- Each result has a buffer, which is allocated in the first step, and again if its shape changes.
- A state whose next value is such a result takes its buffer, and gives its own memory for the next
  step (double buffering).
- All other operations are called as PyTensor calls them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from numba.core.compiler import Compiler
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FrozenFunctionGraph
from pytensor.link.numba.cache import compile_numba_function_src
from pytensor.link.numba.dispatch import basic
from pytensor.scalar.basic import ScalarType
from pytensor.tensor.basic import TensorFromScalar
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.subtensor import Subtensor
from pytensor.tensor.type import DenseTensorType

from scanopt_cli.ir.indexing import indices_of, is_full_slice, number
from scanopt_cli.loop.memory import memory_of
from scanopt_cli.loop.numba_products import multiply
from scanopt_cli.loop.products import Product


@basic.numba_njit
def _same_length(one: Any, other: Any) -> None:
    """Raise if the operands of an elementwise operation differ in length."""
    if one != other:
        raise ValueError("Incompatible shapes of the operands of an elementwise operation")


@basic.numba_njit
def _row_at(index: Any, length: Any) -> Any:
    """Return the row at an index, which counts from the end if it is negative."""
    row = index + length if index < 0 else index
    if row < 0 or row >= length:
        raise IndexError("index out of bounds")
    return row


class _KernelCompiler(Compiler):
    """Numba's compiler, for functions that write no array which they have by another name too."""

    def __init__(
        self,
        typing_context: Any,
        target: Any,
        library: Any,
        arguments: Any,
        result: Any,
        flags: Any,
        variables: Any,
    ) -> None:
        flags = flags.copy()
        flags.noalias = True
        super().__init__(typing_context, target, library, arguments, result, flags, variables)


@basic.numba_njit
def _bounds_at(start: Any, stop: Any, length: Any) -> Any:
    """Return the first row of a slice, and the one after the last, as Python counts them."""
    first = max(start + length, 0) if start < 0 else min(start, length)
    end = max(stop + length, 0) if stop < 0 else min(stop, length)
    return first, max(first, end)


_NAMES: dict[str, Any] = {
    "bounds_at": _bounds_at,
    "multiply": multiply,
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


@dataclass(frozen=True, slots=True)
class _Operand:
    """An array in the source, or a part of it.

    ``places`` has what the part is in each dimension of the array: a row, rows from one to before
    another, or ``None`` for all rows.
    """

    array: str
    places: tuple[str | tuple[str, str] | None, ...]

    def length(self, axis: int) -> str:
        """Return the source of a length of the part."""
        kept = [i for i, place in enumerate(self.places) if not isinstance(place, str)]
        place = self.places[kept[axis]]
        if isinstance(place, tuple):
            return f"({place[1]} - {place[0]})"
        return f"{self.array}.shape[{kept[axis]}]"


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
    _parts: dict[Variable, _Operand] = field(default_factory=dict)
    _numbers: dict[Variable, str] = field(default_factory=dict)
    _fresh: set[Variable] = field(default_factory=set)
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
        self._fresh = set(kept) - set(swapped.values())
        return swapped

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
        name = f"f{len(self._keys)}"
        self._add_global(name, function, key)
        targets = ", ".join(map(self._name, node.outputs))
        self._step.append(f"{targets} = {name}({', '.join(map(self._name, node.inputs))})")

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
        self._parts[node.outputs[0]] = _Operand(name, tuple(places))
        return True

    def _operand(self, variable: Variable) -> _Operand:
        whole = (None,) * variable.type.ndim
        return self._parts.get(variable) or _Operand(self._name(variable), whole)

    def _add_buffer(self, output: Any, lengths: Sequence[str]) -> str:
        """Give a result memory of some lengths."""
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
        rows = [f"{left}.shape[0]"] if left_ndim == 2 else []
        columns = [f"{right}.shape[1]"] if right_ndim == 2 else []
        made = self._add_buffer(node.outputs[0], [*rows, *columns])
        self._step.append(f"multiply({made}, {left}, {right})")

    def _add_kernel(self, node: Apply) -> None:
        op: Any = node.op
        lengths = self._lengths(node)
        arguments = {
            f"out_{i}": self._add_buffer(output, lengths) for i, output in enumerate(node.outputs)
        }
        targets = list(arguments)
        entries = [f"k{axis}" for axis in range(len(lengths))]
        values, literals, keys = [], {}, []
        for i, v in enumerate(node.inputs):
            if isinstance(v, Constant) and v.data.size == 1:
                literals[f"c{i}"] = v.data.reshape(())[()]
                keys.append(basic.cache_key_for_constant(literals[f"c{i}"]))
                values.append(f"c{i}")
                continue
            if v in self._numbers:
                arguments[f"a{i}"] = self._numbers[v]
                values.append(f"a{i}")
                continue
            operand = self._operand(v)
            arguments[f"a{i}"] = operand.array
            own = iter(["0" if v.type.shape[k] == 1 else e for k, e in enumerate(entries)])
            places = []
            for k, place in enumerate(operand.places):
                if place is None:
                    places.append(next(own))
                    continue
                row = f"i{i}_{k}"
                arguments[row] = place if isinstance(place, str) else place[0]
                places.append(row if isinstance(place, str) else f"{row} + {next(own)}")
            values.append(f"a{i}[{', '.join(places)}]")
        function, key = basic.numba_funcify_and_cache_key(
            op.scalar_op, node=op.make_scalar_node(*node.inputs), ofg_memo=self.memo
        )
        source = [f"def kernel({', '.join(arguments)}):"]
        source += [
            f"{'    ' * (axis + 1)}for {entry} in range(out_0.shape[{axis}]):"
            for axis, entry in enumerate(entries)
        ]
        stored = ", ".join(f"{target}[{', '.join(entries)}]" for target in targets)
        source.append(f"{'    ' * (len(entries) + 1)}{stored} = function({', '.join(values)})\n")
        text = "\n".join(source)
        kernel = compile_numba_function_src(
            text, "kernel", {**vars(basic), **literals, "function": function}
        )
        compiled = basic.numba_njit(kernel, boundscheck=False, pipeline_class=_KernelCompiler)
        name = f"f{len(self._keys)}"
        self._add_global(name, compiled, key and f"({text}, {key}, {keys})")
        self._step.append(f"{name}({', '.join(arguments.values())})")

    def _lengths(self, node: Apply) -> list[str]:
        """Return the source of the lengths of a result, and check that the operands have them."""
        found = []
        for axis in range(node.outputs[0].type.ndim):
            operands = [v for v in node.inputs if v.type.shape[axis] != 1]
            known = {v.type.shape[axis] for v in operands}
            sources = dict.fromkeys(self._operand(v).length(axis) for v in operands)
            first, *others = sources or ["1"]
            if len(known) > 1 or None in known:
                self._step += [f"same_length({first}, {other})" for other in others]
            found.append(first)
        return found


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
