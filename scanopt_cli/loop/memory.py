"""Who owns the memory of a loop's states.

A loop owns its states: it copies the initial values once (unless it may overwrite them), and from
then on each state has memory of its own, which the body may overwrite. So what a step returns must
not share memory with a constant of the loop, nor with another state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pytensor.compile.ops import deep_copy_op
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.elemwise import Elemwise


def memory_of(variable: Variable, is_apart: Callable[[Apply], bool] = lambda _: False) -> Variable:
    """Return the variable whose memory ``variable`` has, by ``view_map`` and ``destroy_map``.

    Nodes of which ``is_apart`` holds return memory of their own, whatever their Ops declare.
    """
    while (node := variable.owner) is not None and not is_apart(node):
        place = node.outputs.index(variable)
        shared = {*node.op.view_map.get(place, ()), *node.op.destroy_map.get(place, ())}
        if not shared:
            break
        (source,) = shared
        variable = node.inputs[source]
    return variable


def copy_shared_outputs(body: FunctionGraph, n_states: int) -> None:
    """Copy, within ``body``, next states that share memory with a constant or another next state.

    A next state may be the memory of any one state. Doing this twice changes nothing.
    """
    owned = set(body.inputs[1 : 1 + n_states])
    taken: set[Variable] = set()
    for position, output in enumerate(body.outputs[:n_states]):
        root = memory_of(output)
        if root in taken or (root.owner is None and root not in owned):
            copied: Any = deep_copy_op(output)
            body.change_node_input(*body.get_output_client(position), copied, reason="loop_memory")
        else:
            taken.add(root)


def overwrite_own_states(body: FunctionGraph, n_states: int) -> None:
    """Let elementwise arithmetic that overwrites a state put the next value of that state there.

    Of several results, PyTensor takes the first that fits. Then the next state is in other memory,
    and a loop over long arrays goes through more memory than the cache has.
    """
    owners: dict[Any, Any] = dict(
        zip(body.outputs[:n_states], body.inputs[1 : 1 + n_states], strict=True)
    )
    for node in body.toposort():
        op: Any = node.op
        if not isinstance(op, Elemwise):
            continue
        pattern: dict[int, int] = dict(op.inplace_pattern)
        for place, source in op.inplace_pattern.items():
            state: Any = node.inputs[source]
            own = [
                other
                for other, output in enumerate(node.outputs)
                if output in owners
                and owners[output] is state
                and output.type.dtype == state.type.dtype
            ]
            if own and own[0] not in pattern:
                del pattern[place]
                pattern[own[0]] = source
        if pattern != op.inplace_pattern:
            outputs = [v.type() for v in node.outputs]
            new = Apply(Elemwise(op.scalar_op, pattern), node.inputs, outputs)
            pairs = list(zip(node.outputs, new.outputs, strict=True))
            body.replace_all_validate(pairs, reason="own_states")
