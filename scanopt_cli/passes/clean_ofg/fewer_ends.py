"""An OpFromGraph with fewer inputs and outputs, and what replaces the outputs of a node by it."""

from __future__ import annotations

from collections.abc import Container, Sequence

from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.tensor.blockwise import Blockwise

from scanopt_cli.ir.inner_graphs import core_op
from scanopt_cli.ir.interning import check_kept
from scanopt_cli.passes.clean_ofg.ends import Ends


def replacements(node: Apply, ends: Ends) -> dict[Variable, Variable]:
    """Return what replaces the outputs of a node that are read.

    Those are inputs of the node, or outputs of one that applies a new OpFromGraph, which all nodes
    share that applied the old one.
    """
    found = {node.outputs[place]: node.inputs[to] for place, to in ends.passed.items()}
    if not ends.kept_outputs:
        return found
    dropped = dropped_inputs(ends)
    made = _new_op(node.op, ends).make_node(*_but(node.inputs, dropped))
    new = dict(zip(ends.kept_outputs, made.outputs, strict=True))
    for place, variable in enumerate(node.outputs):
        replacement = new.get(ends.same_output.get(place, place))
        if replacement is not None and place not in ends.passed:
            replacement.name = replacement.name or variable.name
            found[variable] = replacement
    return found


def dropped_inputs(ends: Ends) -> set[int]:
    """Return the inputs that the new OpFromGraph does not have."""
    unread = set(ends.unread_inputs).difference(ends.staying_inputs)
    return unread.union(ends.same_input)


def _new_op(op: Op, ends: Ends) -> Op:
    """Return the Op in place of that of a node."""
    old = core_op(op)
    assert isinstance(old, OpFromGraph)
    if old.name not in ends.made:
        ends.made[old.name] = _with_fewer_ends(old, ends)
    new = ends.made[old.name]
    if not isinstance(op, Blockwise):
        return new
    outputs = set(range(len(op.outputs_sig))).difference(ends.kept_outputs)
    signature = "->".join(
        ",".join(f"({','.join(lengths)})" for lengths in _but(signatures, places))
        for signatures, places in (
            (op.inputs_sig, dropped_inputs(ends)),
            (op.outputs_sig, outputs),
        )
    )
    return Blockwise(new, signature=signature, name=op.name)


def _with_fewer_ends(old: OpFromGraph, ends: Ends) -> OpFromGraph:
    inputs = [variable.type() for variable in old.fgraph.inputs]
    given = [inputs[ends.same_input.get(place, place)] for place in range(len(inputs))]
    bound = old.fgraph.bind(given)
    outputs = [bound[place] for place in ends.kept_outputs]
    new = OpFromGraph(_but(inputs, dropped_inputs(ends)), outputs, name=old.name)
    check_kept(outputs, new.fgraph, str(old))
    return new


def _but[T](items: Sequence[T], places: Container[int]) -> list[T]:
    """Return the items that are not at ``places``."""
    return [item for place, item in enumerate(items) if place not in places]
