"""The code of a graph: one node after the other, by the rule of its Op.

A rule is given what stands for the inputs of a node, and returns what stands for its outputs, or
``None``, before it writes anything, if it does not know the node. Then what PyTensor's Numba
backend compiles for the node is called.

A graph holds one reference to each block of memory that it makes, and gives it up as soon as no
later node reads a value in the block.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import singledispatch
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FrozenFunctionGraph
from pytensor.link.numba.dispatch import basic
from pytensor.scalar.basic import ScalarType

from scanopt_cli.codegen.buffers import Pool
from scanopt_cli.codegen.scalars import rule_of
from scanopt_cli.codegen.values import Array, Length, Memory, Number, Other, Value, is_real
from scanopt_cli.codegen.writer import Writer


class GraphWriter(Writer):
    """Writes the code of the nodes of a graph.

    Attributes
    ----------
    known
        What stands for the variables that are computed and are read later.
    pool
        The buffers of the loop that is written, if it is one.
    """

    def __init__(self, context: Any, builder: Any, memo: Any) -> None:
        super().__init__(context, builder)
        self.memo = memo
        self.known: dict[Variable, Value] = {}
        self.pool: Pool | None = None

    def bind(self, variable: Variable, value: Value) -> None:
        """Let a value stand for a variable, until `drop`."""
        value = self._fitting(variable, value)
        self.known[variable] = value
        if not isinstance(value, Number):
            value.memory.n_users += 1

    def _fitting(self, variable: Any, value: Value) -> Value:
        """Return a value as one of the type of a variable, whose static shape is checked."""
        kind = variable.type
        if isinstance(value, Array):
            value = replace(value, shape=self.checked(value.shape, kind.shape))
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

    def drop(self, variable: Variable) -> None:
        """Forget a variable that nothing reads any more, and give up its memory."""
        value = self.known.pop(variable)
        if isinstance(value, Number):
            return
        value.memory.n_users -= 1
        if value.memory.n_users:
            return
        if isinstance(value, Other) and value.is_owned:
            self.context.nrt.decref(self.builder, value.numba_type, value.code)
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

    def allocate(self, dtype: Any, shape: Sequence[Length]) -> Array:
        """Return an array of memory that nothing else uses: in a loop, a buffer's if it can be."""
        dtype = np.dtype(dtype)
        new = super().allocate
        pool = self.pool
        buffer = None if pool is None else pool.take(dtype, shape, lambda: new(dtype, shape))
        if buffer is None:
            return new(dtype, shape)
        data = self.builder.load(buffer.data)
        memory = buffer.memory(self.builder)
        return Array(dtype, data, tuple(shape), self.row_major(dtype, shape), memory, True)

    def value(self, variable: Any) -> Value:
        """Return what stands for a variable, or for a constant."""
        if variable in self.known:
            return self.known[variable]
        if isinstance(variable, Constant) and is_number_like(variable):
            return self.number(np.asarray(variable.data).reshape(())[()], variable.type.dtype)
        kind = self.context.typing_context.resolve_value_type(variable.data)
        return self.from_numba(
            self.context.get_constant_generic(self.builder, kind, variable.data),
            kind,
            is_owned=False,
        )

    def as_array(self, value: Value, ndim: int) -> Array:
        """Return a number as an array of one entry, in memory of its own."""
        if isinstance(value, Number):
            made = self.allocate(value.dtype, (1,) * ndim)
            self.store(value, made.data, value.dtype)
            return made
        assert isinstance(value, Array)
        return value

    def write(self, nodes: Sequence[Apply], outputs: Sequence[Variable]) -> None:
        """Write nodes in their order; what is read later, or is an output, stays known."""
        readers = Counter([*outputs, *(v for node in nodes for v in node.inputs)])
        for node in nodes:
            inputs = [self.value(v) for v in node.inputs]
            made = write_node(node.op, node, self, inputs)
            if made is None:
                made = self._called(node, inputs)
            for output, value in zip(node.outputs, made, strict=True):
                self.bind(output, value)
            for variable in node.inputs:
                readers[variable] -= 1
            for variable in dict.fromkeys((*node.inputs, *node.outputs)):
                if not readers[variable] and variable in self.known:
                    self.drop(variable)

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

    def _called(self, node: Apply, inputs: Sequence[Value]) -> list[Value]:
        function, _ = basic.numba_funcify_ensure_cache(node.op, node=node, ofg_memo=self.memo)
        values, made = [], []
        for variable, value in zip(node.inputs, inputs, strict=True):
            if isinstance(value, Number) and not isinstance(variable.type, ScalarType):
                value = self.as_array(value, variable.type.ndim)
                made.append(value)
            values.append(value)
        found = self.call(function, values)
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
) -> Sequence[Value] | None:
    """Write a node, and return what stands for its outputs; ``None`` if no rule knows it."""
    if isinstance(node.outputs[0].type, ScalarType):
        rule = rule_of(op, node)
        if rule is not None and all(isinstance(v, Number) for v in inputs):
            return rule(writer, [v for v in inputs if isinstance(v, Number)])
    return None
