"""Keeps outer products of sequences in the loop, where each is read once and never stored.

The rows of all products take far more memory than their factors: computed before the loop, they
are written to memory and read again, which takes longer than to multiply.
"""

from __future__ import annotations

from typing import Any

from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.tensor.elemwise import DimShuffle, Elemwise

from scanopt_cli.ir.scan_view import ScanView
from scanopt_cli.ir.slots import SlotKind
from scanopt_cli.loop.costs import is_costly


class _Held(Op):
    """What another Op computes, in a form that PyTensor leaves in the loop."""

    __props__ = ("op",)

    def __init__(self, op: Op) -> None:
        self.op = op

    def make_node(self, *inputs: Variable) -> Apply:
        """Apply the Op."""
        return Apply(self, list(inputs), [v.type() for v in self.op.make_node(*inputs).outputs])

    def perform(self, *_: Any) -> None:
        """Refuse to run: no step holds such an Op for long."""
        raise NotImplementedError


def hold_products(view: ScanView) -> dict[Variable, Variable] | None:
    """Hold the outer products in a body; return replacements for all outputs.

    ``None`` if there are none.
    """
    held = ScanView.of(view.node)
    held.unfreeze()
    body = FunctionGraph(outputs=held.inner_outputs(), clone=False)
    products = _outer_products(held, body)
    if not products:
        return None
    for node in products:
        held_node = _Held(node.op).make_node(*node.inputs)
        body.replace(node.outputs[0], held_node.outputs[0], import_missing=True)
    held.set_inner_outputs(list(body.outputs))
    return held.rebuild()


def release_products(view: ScanView) -> dict[Variable, Variable]:
    """Undo `hold_products`; return replacements for all outputs."""
    view.unfreeze()
    body = FunctionGraph(outputs=view.inner_outputs(), clone=False)
    for node in body.toposort():
        if isinstance(node.op, _Held):
            again: Apply = node.op.op.make_node(*node.inputs)
            body.replace(node.outputs[0], again.outputs[0], import_missing=True)
    view.set_inner_outputs(list(body.outputs))
    return view.rebuild()


def _outer_products(view: ScanView, body: FunctionGraph) -> list[Apply]:
    """Return the nodes that make an array of two dimensions or more of smaller parts of sequences.

    All that a slow function such as exp is computed of is left out: it pays to compute that for all
    steps at once.
    """
    rows = {slot.inner_inputs[0] for slot in view.of_kind(SlotKind.SEQ)}
    known = rows | {slot.inner_inputs[0] for slot in view.of_kind(SlotKind.NON_SEQ)}
    found = []
    for node in body.toposort():
        is_known = all(v in known or isinstance(v, Constant) for v in node.inputs)
        if isinstance(node.op, Elemwise | DimShuffle) and is_known:
            known.update(node.outputs)
            if not rows.isdisjoint(node.inputs):
                rows.update(node.outputs)
                found.append(node)
    slow: set[Variable] = set()
    products = []
    for node in reversed(found):
        if is_costly(node.op) or not slow.isdisjoint(node.outputs):
            slow.update(node.inputs)
        elif isinstance(node.op, Elemwise) and _is_larger(node, rows):
            products.append(node)
    return products


def _is_larger(node: Apply, rows: set[Variable]) -> bool:
    """Whether a node makes an array that is larger than each of the sequences' rows it reads."""
    made = node.outputs[0].type
    return made.ndim > 1 and all(
        v.type.broadcastable != made.broadcastable for v in node.inputs if v in rows
    )
