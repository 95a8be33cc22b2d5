"""The code of a graph: one node after the other, by the rule of its Op.

A rule is given what stands for the inputs of a node, and returns what stands for its outputs, or
``None``, before it writes anything, if it does not know the node. Then what PyTensor's Numba
backend compiles for the node is called.

A graph holds one reference to each block of memory that it makes, and gives it up as soon as no
later node reads a value in the block.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import singledispatch
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FrozenFunctionGraph
from pytensor.link.numba.dispatch import basic
from pytensor.scalar.basic import ScalarType
from pytensor.tensor.basic import Nonzero

from scanopt_cli.loop.codegen.buffers import Pool, Stack
from scanopt_cli.loop.codegen.lengths import is_same
from scanopt_cli.loop.codegen.scalars import rule_of
from scanopt_cli.loop.codegen.values import (
    Array,
    Buffer,
    Gathered,
    Length,
    Memory,
    Number,
    Other,
    Value,
    is_real,
)
from scanopt_cli.loop.codegen.writer import NEGATIVE_LENGTH, Writer


class _Order:
    """The nodes that are written, and who reads what they compute.

    Attributes
    ----------
    readers
        The nodes that read a variable, as often as they do; ``None`` for an output of the graph.
    done
        What stands for the outputs of nodes that were written with others before them.
    """

    def __init__(self, nodes: Sequence[Apply], outputs: Sequence[Variable]) -> None:
        self.readers: dict[Variable, list[Apply | None]] = {}
        for node in nodes:
            for variable in node.inputs:
                self.readers.setdefault(variable, []).append(node)
        for variable in outputs:
            self.readers.setdefault(variable, []).append(None)
        self.done: dict[Apply, Sequence[Value | None]] = {}
        self._nodes = nodes
        self._places = {node: i for i, node in enumerate(nodes)}

    def only_reader(self, variable: Variable) -> Apply | None:
        """Return the node that alone reads a variable, and once."""
        readers = self.readers.get(variable, [])
        return readers[0] if len(readers) == 1 else None

    def overwrites_nothing(self, first: Apply, last: Apply) -> bool:
        """Whether the nodes after ``first``, up to ``last``, overwrite no memory."""
        between = self._nodes[self._places[first] + 1 : self._places[last] + 1]
        return not any(node.op.destroy_map for node in between)


class GraphWriter(Writer):
    """Writes the code of the nodes of a graph.

    Attributes
    ----------
    known
        What stands for the variables that are computed and are read later.
    pool
        The buffers of the loop that is written, if it is one.
    order
        The nodes that are written, one after the other.
    waits_for_states
        Whether a loop is written whose next states depend on the states in more ways than sums.
    places
        Where to compute variables: in the memory of states that no step reads.
    rooms
        Buffers on the stack, by function and type of entries, that loops use one after the other.
    equal_loops, loop_functions
        Keys of the loops that have an equal one, and the functions that are written for such loops.
    """

    def __init__(self, context: Any, builder: Any, memo: Any, functions: list[Any]) -> None:
        super().__init__(context, builder, memo, functions)
        self.known: dict[Variable, Value] = {}
        self.pool: Pool | None = None
        self.order = _Order((), ())
        self.waits_for_states = False
        self.places: dict[Variable, Array] = {}
        self.rooms: dict[tuple[str, str], list[Any]] = {}
        self.equal_loops: Mapping[int, object] = {}
        self.loop_functions: dict[object, Any] = {}
        self._stack = Stack()

    def bind(self, variable: Variable, value: Value) -> None:
        """Let a value stand for a variable, until `drop`."""
        value = self._fitting(variable, value)
        self.known[variable] = value
        if not isinstance(value, Number):
            value.memory.n_users += 1

    def _fitting(self, variable: Any, value: Value) -> Value:
        """Return a value as one of the type of a variable, whose static shape is checked."""
        kind = variable.type
        if isinstance(value, Gathered):
            return value
        if isinstance(value, Array):
            value = self._checked(value, kind.shape)
            if not is_number_like(variable):
                return value
            number = self.load(self.entry(value, [0] * value.ndim), value.dtype)
            if not value.memory.n_users:
                self.give_up(value.memory)
            value = number
        if isinstance(value, Number):
            value = self.cast(value, kind.dtype)
            if not is_number_like(variable):
                return self.as_array(value, kind.ndim)
        return value

    def _checked(self, value: Array, known: Sequence[int | None]) -> Array:
        """Return an array after a check of the lengths that are known."""
        shape, buffer = self.checked(value.shape, known), value.memory.buffer
        if buffer is not None and buffer.has_size(value.shape):
            buffer.shape = shape  # the lengths are the same; those that are known are told apart
        return replace(value, shape=shape)

    def drop(self, variable: Variable) -> None:
        """Forget a variable that nothing reads any more, and give up its memory."""
        value = self.known.pop(variable)
        if isinstance(value, Number):
            return
        value.memory.n_users -= 1
        if not value.memory.n_users:
            self.give_up(value.memory)

    def give_up(self, memory: Memory) -> None:
        """Give up memory that has no users: the reference to it, or the buffer that holds it."""
        if memory.buffer is not None:
            assert self.pool is not None
            self.pool.give_back(memory.buffer)
        else:
            self.release(memory)
        for whole in memory.within:
            whole.n_users -= 1
            if not whole.n_users:
                self.give_up(whole)

    def give_up_all(self, values: Sequence[Value]) -> None:
        """Give up the memory of values that has no users: once, if several are in the same."""
        for memory in dict.fromkeys(v.memory for v in values if not isinstance(v, Number)):
            if not memory.n_users:
                self.give_up(memory)

    def place_of(self, variable: Variable, shape: Sequence[Length]) -> Array | None:
        """Return the memory that a variable of a shape is to be computed in, if there is any."""
        found = self.places.get(variable)
        return found if found is not None and all(map(is_same, found.shape, shape)) else None

    def allocate(self, dtype: Any, shape: Sequence[Length]) -> Array:
        """Return an array of memory that nothing else uses: in a loop, a buffer's if it can be."""
        dtype, new = np.dtype(dtype), super().allocate

        def make() -> Buffer:
            if (found := self.room(dtype, shape)) is not None:
                return found
            # The step that needs the memory may never run: only there, a negative length is wrong.
            return Buffer.of(self.builder, new(dtype, [self.larger(n, 0) for n in shape]))

        buffer = None if self.pool is None else self.pool.take(dtype, shape, make)
        if buffer is None:
            return new(dtype, shape)
        for n in shape:
            self.fail_if(self.is_less(n, 0), ValueError, NEGATIVE_LENGTH)
        return self.held(buffer, dtype, shape)

    def room(self, dtype: Any, shape: Sequence[Length]) -> Buffer | None:
        """Return a buffer on the stack, for small arrays of known lengths."""
        dtype = np.dtype(dtype)
        kind = self.data_type(dtype)
        return self._stack.room(self.builder, kind, dtype.itemsize, shape)

    def held(self, buffer: Buffer, dtype: Any, shape: Sequence[Length]) -> Array:
        """Return the array of a shape whose memory a buffer holds."""
        data, memory = buffer.pointer(self.builder), buffer.memory(self.builder)
        strides = self.row_major(dtype, shape)
        return Array(dtype, data, tuple(shape), strides, memory, True)

    def value(self, variable: Any) -> Value:
        """Return what stands for a variable, or for a constant."""
        if variable in self.known:
            return self.known[variable]
        if isinstance(variable, Constant) and is_number_like(variable):
            return self.number(np.asarray(variable.data).reshape(())[()], variable.type.dtype)
        # With gaps between its entries, Numba would keep its address, and nothing on disk.
        data = basic.numba_typify(variable.data)
        kind = self.context.typing_context.resolve_value_type(data)
        return self.from_numba(
            self.context.get_constant_generic(self.builder, kind, data),
            kind,
            is_owned=False,
            shape=getattr(variable.type, "shape", ()),
        )

    def as_array(self, value: Value, ndim: int) -> Array:
        """Return a number as an array of one entry."""
        if isinstance(value, Number):
            made = self.allocate(value.dtype, (1,) * ndim)
            self.store(value, made.data, value.dtype)
            return made
        assert isinstance(value, Array)
        return value

    @contextmanager
    def without_buffers(self) -> Iterator[None]:
        """Let what is written inside allocate memory of its own, which is counted."""
        pool, self.pool = self.pool, None
        yield
        self.pool = pool

    def with_reference(self, value: Value, ndim: int, *, is_copied: bool) -> Array | Other:
        """Return a value with a reference of its own, of a copy or of what memory it has."""
        assert not isinstance(value, Gathered)
        if isinstance(value, Number) or (is_copied and isinstance(value, Array)):
            with self.without_buffers():
                return (
                    self.copied(value) if isinstance(value, Array) else self.as_array(value, ndim)
                )
        self.keep(value)
        return value

    @contextmanager
    def ordered(self) -> Iterator[None]:
        """Have LLVM compute numbers in the order that is written, if states wait for them."""
        self.keeps_order = self.waits_for_states
        yield
        self.keeps_order = False

    def write(self, nodes: Sequence[Apply], outputs: Sequence[Variable]) -> None:
        """Write nodes in their order; what is read later, or is an output, stays known."""
        outside, self.order = self.order, _Order(nodes, outputs)
        left = {v: len(readers) for v, readers in self.order.readers.items()}
        for node in nodes:
            made = self.order.done.pop(node, None)
            if made is None:
                made = self.made_by(node, [self.value(v) for v in node.inputs])
            for output, value in zip(node.outputs, made, strict=True):
                if value is not None:
                    self.bind(output, value)
            for variable in node.inputs:
                left[variable] -= 1
            for variable in dict.fromkeys((*node.inputs, *node.outputs)):
                if not left.get(variable) and variable in self.known:
                    self.drop(variable)
        self.order = outside

    @contextmanager
    def another_function(self, builder: Any) -> Iterator[None]:
        """Write what is written inside into another function, outside of all loops."""
        names = ("builder", "known", "places", "order", "waits_for_states", "_stack")
        outside = [(name, getattr(self, name)) for name in names]
        assert self.pool is None
        self.builder, self.known, self.places = builder, {}, {}
        self.waits_for_states, self._stack = False, Stack()
        yield
        for name, value in outside:
            setattr(self, name, value)

    def inner(self, graph: FrozenFunctionGraph, inputs: Sequence[Value]) -> list[Value]:
        """Write a graph in place of a node, and return what stands for its outputs."""
        outside, self.known = self.known, {}
        for variable, value in zip(graph.inputs, inputs, strict=True):
            self.bind(variable, value)
        self.write(graph.toposort(), graph.outputs)
        found = [self.value(v) for v in graph.outputs]
        for value in found:
            if not isinstance(value, Number):
                value.memory.n_users += 1  # its memory is the caller's now
        for variable in list(self.known):
            self.drop(variable)
        for value in found:
            if not isinstance(value, Number):
                value.memory.n_users -= 1
        self.known = outside
        return found

    def made_by(self, node: Apply, inputs: Sequence[Value]) -> Sequence[Value | None]:
        """Write a node, and return what stands for its outputs."""
        made = write_node(node.op, node, self, inputs)
        return self._called(node, inputs) if made is None else made

    def _called(self, node: Apply, inputs: Sequence[Value]) -> list[Value]:
        function, key = basic.numba_funcify_ensure_cache(node.op, node=node, ofg_memo=self.memo)
        if isinstance(node.op, Nonzero):
            function = np.nonzero  # PyTensor's returns a list, whose length no type says
        values, made = [], []
        for variable, value in zip(node.inputs, inputs, strict=True):
            if isinstance(value, Number) and not isinstance(variable.type, ScalarType):
                value = self.as_array(value, variable.type.ndim)
                made.append(value)
            values.append(value)
        found = self.call(function, values, is_cached=key is not None)
        for value in made:
            self.give_up(value.memory)
        for k, value in enumerate(found):
            places = (*node.op.view_map.get(k, ()), *node.op.destroy_map.get(k, ()))
            sources = [inputs[place] for place in places]
            if isinstance(value, Array):
                value.memory.within = tuple(v.memory for v in sources if isinstance(v, Array))
                for memory in value.memory.within:
                    memory.n_users += 1
        return found


def is_number_like(variable: Any) -> bool:
    """Whether a number in a register stands for a variable: of one entry, and a real dtype."""
    kind = variable.type
    if isinstance(kind, ScalarType):
        return is_real(kind.dtype)
    broadcastable = getattr(kind, "broadcastable", (False,))
    return all(broadcastable) and is_real(kind.dtype)


@singledispatch
def write_node(
    op: Any, node: Apply, writer: GraphWriter, inputs: Sequence[Value]
) -> Sequence[Value | None] | None:
    """Write a node, and return what stands for its outputs; ``None`` if no rule knows it.

    Nothing stands for an output whose only reader was written with the node.
    """
    if isinstance(node.outputs[0].type, ScalarType):
        rule = rule_of(op, node)
        if rule is not None and all(isinstance(v, Number) for v in inputs):
            with writer.ordered():
                return rule(writer, [v for v in inputs if isinstance(v, Number)])
    return None
