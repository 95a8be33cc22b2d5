"""Loops in Numba: a compiled ``for`` or ``while`` that calls the compiled body.

Importing this module registers the operators with PyTensor's Numba backend.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from itertools import islice
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FrozenFunctionGraph
from pytensor.graph.traversal import ancestors
from pytensor.link.numba.cache import compile_numba_function_src
from pytensor.link.numba.dispatch import basic
from pytensor.link.numba.dispatch.basic import (
    numba_funcify_and_cache_key,
    register_funcify_and_cache_key,
    register_funcify_default_op_cache_key,
)
from pytensor.link.numba.dispatch.compile_ops import numba_deepcopy
from pytensor.scalar.basic import ScalarType
from pytensor.typed_list.type import TypedListType

from scanopt_cli.loop.memory import memory_of
from scanopt_cli.loop.numba_steps import StepCode, StepWriter
from scanopt_cli.loop.operators import Loop, TracedLoop
from scanopt_cli.loop.row_access import ReadNumber, WriteEntries, WriteRow, checked_before

_VERSION = 12
"""Part of the key under which a compiled loop is cached.

Raise it when the source below changes, or that of steps or products.
"""


@register_funcify_default_op_cache_key(ReadNumber)  # type: ignore[untyped-decorator]
def _read_number(op: ReadNumber, **_: Any) -> Callable[..., Any]:
    entry = op.entry

    @basic.numba_njit(boundscheck=False)
    def read(array: Any, index: Any) -> Any:
        return array[(index, *entry)]

    return read  # type: ignore[no-any-return]


@register_funcify_default_op_cache_key(WriteRow)  # type: ignore[untyped-decorator]
def _write_row(op: WriteRow, **_: Any) -> Callable[..., Any]:
    adds = op.adds

    def write(array: Any, index: Any, row: Any) -> Any:
        if adds:
            array[index] += row
        else:
            array[index] = row
        return array

    # Numba's own assignment of an array looks for overlaps, and copies.
    def write_vector(array: Any, index: Any, row: Any) -> Any:
        target = array[index]
        if target.shape[0] != row.shape[0]:
            target[:] = target + row if adds else row
        else:
            for i in range(target.shape[0]):
                target[i] = target[i] + row[i] if adds else row[i]
        return array

    function = write_vector if op.ndim == 1 else write
    made: Callable[..., Any] = basic.numba_njit(function, boundscheck=op.is_checked)
    return made


@register_funcify_default_op_cache_key(WriteEntries)  # type: ignore[untyped-decorator]
def _write_entries(op: WriteEntries, **_: Any) -> Callable[..., Any]:
    places = list(np.ndindex(*op.shape))
    names = [f"entry_{i}" for i in range(len(places))]
    sign = "+=" if op.adds else "="
    source = (
        f"def write({', '.join(['array', 'index', *names])}):\n"
        "    row = array[index]\n"
        f"{''.join(f'    row[{p}] {sign} {v}\n' for p, v in zip(places, names, strict=True))}"
        "    return array\n"
    )
    function = compile_numba_function_src(source, "write", vars(basic))
    made: Callable[..., Any] = basic.numba_njit(function, boundscheck=op.is_checked)
    return made


@register_funcify_and_cache_key(Loop)  # type: ignore[untyped-decorator]
def _loop(op: Loop, **kwargs: Any) -> tuple[Callable[..., Any], str | None]:
    memo = kwargs.get("ofg_memo")
    written = _written_states(op)
    checks = checked_before(op.fgraph, op.n_states)
    indices = {
        f"row_of_{i}": numba_funcify_and_cache_key(check.graph, fgraph_name="row", ofg_memo=memo)[0]
        for i, check in enumerate(checks)
    }
    writes = {
        i: numba_funcify_and_cache_key(node.op, node=node, ofg_memo=memo)
        for i, node in written.items()
    }
    states = [f"state_{i}" for i in range(op.n_states)]
    constants = [f"constant_{i}" for i in range(len(op.fgraph.inputs) - 1 - op.n_states)]
    own = [name for i, name in enumerate(states) if i not in written]
    inputs = ["index", *own, *constants]
    step = StepWriter(_without(op, written), inputs, len(own), memo).write()
    source = _source(op, states, constants, [check.position for check in checks], written, step)
    names = {**step.names, "numba_deepcopy": numba_deepcopy, **indices}
    names |= {f"write_{i}": write for i, (write, _) in writes.items()}
    function = compile_numba_function_src(source, "loop", {**vars(basic), "np": np, **names})
    key = None
    keys = [step.key, *(write_key for _, write_key in writes.values())]
    if None not in keys:
        # What computes the indices is a part of the body.
        key = sha256(f"({source}, {keys}, {_VERSION})".encode()).hexdigest()
    return basic.numba_njit(function, boundscheck=False), key


def _written_states(op: Loop) -> dict[int, Apply]:
    """Return the nodes that write a row of a state which a step does not read, by state.

    The loop writes such a row after the step. Handing the array to the step and back would count
    its references twice in every step.
    """
    states, outputs = op.fgraph.inputs[1 : 1 + op.n_states], op.fgraph.outputs
    nodes = op.fgraph.toposort()
    readers = Counter((*outputs, *(v for node in nodes for v in node.inputs)))
    found = {}
    for i, state in enumerate(states):
        node = outputs[i].owner
        if (
            isinstance(outputs[i].owner_op, WriteRow)
            and node.inputs[0] is state
            and readers[state] == readers[outputs[i]] == 1
        ):
            found[i] = node
    overwriting = [
        (node, memory_of(node.inputs[k]))
        for node in nodes
        if node not in found.values()
        for places in node.op.destroy_map.values()
        for k in places
    ]

    def is_overwritten(value: Variable) -> bool:
        """Whether a step overwrites the memory of a value after it has computed it."""
        root, before = memory_of(value), {v.owner for v in ancestors([value])}
        return any(memory is root and node not in before for node, memory in overwriting)

    return {i: node for i, node in found.items() if not any(map(is_overwritten, node.inputs[1:]))}


def _without(op: Loop, written: Mapping[int, Apply]) -> FrozenFunctionGraph:
    """Return the body without the states that the loop writes; it computes what is written."""
    if not written:
        return op.fgraph
    kept = [v for i, v in enumerate(op.fgraph.inputs) if i - 1 not in written]
    outputs = [v for i, v in enumerate(op.fgraph.outputs) if i not in written]
    outputs += [v for node in written.values() for v in node.inputs[1:]]
    # The order of the nodes, of which some overwrite what others read before.
    nodes = [node for node in op.fgraph.toposort() if node not in written.values()]
    return FrozenFunctionGraph.from_toposort(kept, outputs, nodes)


@register_funcify_and_cache_key(TracedLoop)  # type: ignore[untyped-decorator]
def _traced_loop(op: TracedLoop, node: Apply, **_: Any) -> Any:
    kinds = {str(v.type.ttype) for v in node.outputs if isinstance(v.type, TypedListType)}
    raise TypeError(
        f"Numba has no list of {', '.join(sorted(kinds))}, so it cannot run {op}, of which such a "
        "trace is read"
    )


def _source(
    op: Loop,
    states: Sequence[str],
    constants: Sequence[str],
    checked: Sequence[int],
    written: Mapping[int, Apply],
    step: StepCode,
) -> str:
    """Return the source of a function of the number of steps, the states and the constants.

    ``checked`` are the places of the inputs of the body whose rows no step checks, in the order of
    the functions that compute the row of a step; ``written`` are the states that the loop writes.
    """

    def at(index: str) -> str:
        is_number = isinstance(op.fgraph.inputs[0].type, ScalarType)
        return index if is_number else f"np.asarray({index})"

    own = [name for i, name in enumerate(states) if i not in written]
    outputs = iter(step.outputs)
    next_states = {old: new for old, new in zip(own, outputs, strict=False) if old != new}
    goes_on = next(outputs) if op.is_while else None
    writes = [
        f"write_{i}({', '.join([states[i], *islice(outputs, len(node.inputs) - 1)])})"
        for i, node in written.items()
    ]
    # All next states are taken before one of them changes.
    takes = [f"new_{old} = {new}" for old, new in next_states.items()]
    takes += [f"{old} = new_{old}" for old in next_states]
    stop = [f"if not {goes_on}.item():", "    break"] if op.is_while else []
    named = [*states, *constants]
    checks = [
        f"        (first,) = row_of_{i}({', '.join([at('0'), *constants])})\n"
        f"        (last,) = row_of_{i}({', '.join([at('n - 1'), *constants])})\n"
        f"        length = {named[position - 1]}.shape[0]\n"
        "        if min(first, last) < -length or max(first, last) >= length:\n"
        "            raise IndexError('a step of a loop reads or writes a row that is not there')\n"
        for i, position in enumerate(checked)
    ]
    copied = [
        f"{name} = numba_deepcopy({name})" for i, name in enumerate(states) if i not in op.destroyed
    ]
    steps = [f"index = {at('i')}", *step.step, *writes, *takes, *step.after, *stop]
    return (
        f"def loop({', '.join(['n_steps', *states, *constants])}):\n"
        "    n = n_steps.item()\n"
        "    if n < 0:\n"
        "        raise ValueError('a loop was asked for a negative number of steps')\n"
        f"{''.join(f'    {line}\n' for line in (*copied, *step.before))}"
        f"{''.join(['    if n > 0:\n', *checks]) if checks else ''}"
        "    for i in range(n):\n"
        f"{''.join(f'        {line}\n' for line in steps)}"
        f"    return {', '.join(states)}\n"
    )
