"""Loops that are equal: a function of LLVM's, written once, which each of them calls.

A model of several series has a loop for each, and its gradient one more. Their bodies are equal,
and LLVM takes as long for each as for the first. So a loop that has an equal one in the graph is a
function: one call does all steps, and costs next to nothing. Loops in the steps of others stay
where they are: there, their memory is allocated once for all steps of the loop around them, and
LLVM moves what no step changes out of them.

Loops share a function if all is equal that their code depends on but the values of arguments: the
loops themselves (as `keys` tells graphs apart), the types, lengths and layouts of their inputs as
far as they are known, numbers that are known, which inputs or lengths are the same, and who owns
their memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from llvmlite import ir
from numba.core import cgutils
from pytensor.graph.basic import Apply

from scanopt_cli.ir.inner_graphs import inner_graphs
from scanopt_cli.loop.codegen.graphs import GraphWriter
from scanopt_cli.loop.codegen.keys import digest_of
from scanopt_cli.loop.codegen.values import Array, Memory, Number, Value
from scanopt_cli.loop.operators import Loop

_BYTES = ir.IntType(8).as_pointer()
_RESULT = ir.IntType(32)
"""What a function of Numba's returns: 0, unless it raised an error."""


def equal_loops(nodes: Iterable[Apply]) -> dict[int, object]:
    """Return keys, by the ``id`` of the Op, of loops that have an equal one, outside of others.

    Their names do not count.
    """
    loops = list(_loops_outside(nodes))
    sizes = Counter(map(_size, loops))
    several = [op for op in loops if sizes[_size(op)] > 1]
    # As a rule, equal loops have the same body.
    bodies = {id(op.fgraph): op.fgraph for op in several}
    digests = {place: digest_of(body) for place, body in bodies.items()}
    keys = {
        id(op): (digest, op.n_states, op.is_while, op.destroyed, op.in_parts)
        for op in several
        if (digest := digests[id(op.fgraph)]) is not None
    }
    counts = Counter(keys[id(op)] for op in several if id(op) in keys)
    return {place: key for place, key in keys.items() if counts[key] > 1}


def _loops_outside(nodes: Iterable[Apply]) -> Iterator[Loop]:
    for node in nodes:
        if isinstance(node.op, Loop):
            yield node.op
            continue
        for graph in inner_graphs(node.op):
            yield from _loops_outside(graph.toposort())


def _size(op: Loop) -> tuple[int, ...]:
    """Return what equal loops have in common, and is told at once."""
    return op.n_states, len(op.fgraph.inputs), len(op.fgraph.apply_nodes)


@dataclass(frozen=True, slots=True)
class LoopFunction:
    """The function of equal loops.

    Attributes
    ----------
    code
        The function. It is given room for what it returns, and as functions of Numba's are, a place
        for an error; then what varies of the inputs.
    outputs
        What stands for the outputs in the function.
    own
        What varies of the inputs, in the function.
    returned
        What else varies of the outputs, and is returned.
    taken
        The positions of the inputs whose memory the function gives up, or returns.
    """

    code: Any
    outputs: Sequence[Value]
    own: Sequence[Any]
    returned: Sequence[Any]
    taken: Sequence[int]


def called_once_written(
    writer: GraphWriter,
    op: Loop,
    inputs: Sequence[Value],
    write: Callable[[Sequence[Value]], Sequence[Value]],
) -> Sequence[Value] | None:
    """Call the function of a loop, and return what stands for its outputs.

    ``write`` writes the loop, given what stands for its inputs. ``None`` is returned, and nothing
    written, if no other loop equals this one, or if it is in the step of another one, or has inputs
    that are no numbers or arrays with memory of their own.
    """
    key = writer.equal_loops.get(id(op))
    if key is None or writer.pool is not None or not all(map(_may_be_given, inputs)):
        return None
    given = _Varying()
    kind = key, *map(given.kind_of, inputs)
    function = writer.loop_functions.get(kind)
    if function is not None:
        function.code.attributes.add("noinline")  # LLVM inlines what is called once
    else:
        function = _written(writer, inputs, given.codes, write)
        writer.loop_functions[kind] = function
    return _called(writer, function, inputs, given.codes)


def _may_be_given(value: Value) -> bool:
    if isinstance(value, Array):
        return value.memory.buffer is None and not value.memory.within
    return isinstance(value, Number)


class _Varying:
    """The code in values that is known when they are computed only, each once."""

    def __init__(self) -> None:
        self.codes: list[Any] = []
        self._places: dict[int, int] = {}
        self._memories: dict[int, int] = {}

    def kind_of(self, value: Value) -> tuple[object, ...]:
        """Return what is known of a value, and where what varies is among the `codes`."""
        if isinstance(value, Number):
            return value.dtype.str, self._told(value.code)
        assert isinstance(value, Array)
        memory = value.memory
        return (
            value.dtype.str,
            self._told(value.data),
            *map(self._told, value.shape),
            *map(self._told, value.strides),
            value.is_contiguous,
            self._memories.setdefault(id(memory), len(self._memories)),
            self._told(memory.info),
            memory.is_owned,
        )

    def _told(self, code: Any) -> object:
        if isinstance(code, int | ir.Constant):
            return str(code), str(getattr(code, "type", ""))
        if id(code) not in self._places:
            self._places[id(code)] = len(self.codes)
            self.codes.append(code)
        return self._places[id(code)], str(code.type)


def _replaced(values: Sequence[Value], codes: Mapping[int, Any]) -> list[Value]:
    """Return values with other code in place of the given one, and memory of their own."""
    memories: dict[int, Memory] = {}

    def of(code: Any) -> Any:
        return codes.get(id(code), code)

    def of_memory(memory: Memory) -> Memory:
        known = memories.get(id(memory))
        if known is None:
            known = memories[id(memory)] = replace(memory, info=of(memory.info))
        return known

    def of_value(value: Value) -> Value:
        if isinstance(value, Number):
            return replace(value, code=of(value.code))
        assert isinstance(value, Array)
        return replace(
            value,
            data=of(value.data),
            shape=tuple(map(of, value.shape)),
            strides=tuple(map(of, value.strides)),
            memory=of_memory(value.memory),
        )

    return [of_value(value) for value in values]


def _written(
    writer: GraphWriter,
    inputs: Sequence[Value],
    codes: Sequence[Any],
    write: Callable[[Sequence[Value]], Sequence[Value]],
) -> LoopFunction:
    """Write the function of a loop."""
    outside = writer.builder
    error = outside.function.args[1]
    kind = ir.FunctionType(_RESULT, [_BYTES, error.type, *(code.type for code in codes)])
    name = outside.module.get_unique_name("equal_loops")
    function = ir.Function(outside.module, kind, name)
    function.linkage = "internal"
    room, _, *own = function.args
    varying = {id(code): argument for code, argument in zip(codes, own, strict=True)}
    values = _replaced(inputs, varying)
    with writer.another_function(ir.IRBuilder(function.append_basic_block("entry"))):
        outputs = list(write(values))
        made = _Varying()
        for value in outputs:
            # What a loop outside of others computes has memory of its own.
            assert _may_be_given(value)
            made.kind_of(value)
        known = set(map(id, own))
        returned = [code for code in made.codes if id(code) not in known]
        builder = writer.builder
        for place, code in zip(_places(builder, room, returned), returned, strict=True):
            builder.store(code, place)
        builder.ret(_RESULT(0))
    taken = [
        i
        for i, (before, after) in enumerate(zip(inputs, values, strict=True))
        if isinstance(before, Array)
        and isinstance(after, Array)
        and before.memory.is_owned
        and not after.memory.is_owned
    ]
    return LoopFunction(function, outputs, own, returned, taken)


def _places(builder: Any, room: Any, codes: Sequence[Any]) -> list[Any]:
    """Return where code is stored in the room for it."""
    several = builder.bitcast(room, _kind(codes).as_pointer())
    return [cgutils.gep_inbounds(builder, several, 0, i) for i in range(len(codes))]


def _kind(codes: Sequence[Any]) -> Any:
    return ir.LiteralStructType([code.type for code in codes])


def _called(
    writer: GraphWriter, function: LoopFunction, inputs: Sequence[Value], codes: Sequence[Any]
) -> list[Value]:
    """Call the function, return what stands for the outputs, and pass on what it raises."""
    builder = writer.builder
    room = cgutils.alloca_once(builder, _kind(function.returned))
    error = builder.function.args[1]
    result = builder.call(function.code, [builder.bitcast(room, _BYTES), error, *codes])
    with builder.if_then(builder.icmp_signed("!=", result, _RESULT(0)), likely=False):
        builder.ret(result)
    found = {id(one): code for one, code in zip(function.own, codes, strict=True)}
    places = _places(builder, builder.bitcast(room, _BYTES), function.returned)
    for one, place in zip(function.returned, places, strict=True):
        found[id(one)] = builder.load(place)
    for i in function.taken:
        value = inputs[i]
        assert isinstance(value, Array)
        value.memory.is_owned = False
    return _replaced(function.outputs, found)
