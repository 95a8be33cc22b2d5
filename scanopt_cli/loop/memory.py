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
