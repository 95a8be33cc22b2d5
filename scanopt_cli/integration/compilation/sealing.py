"""Hide loops from PyTensor's own rewrites of loops.

PyTensor rewrites every `Scan`, and some of these rewrites are unsound. While a graph is compiled
with scanopt's passes, its loops are *sealed*: an Op of another class, which none of PyTensor's
rewrites of loops matches, replaces each. Other rewrites see an ordinary Op with a known shape. The
loops are unsealed before PyTensor prepares them to run (in-place rewrites, bodies for the backend).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.scan.op import Scan


class SealedScan(Op):
    """A `Scan` that rewrites do not recognise as one."""

    __props__ = ("scan",)

    def __init__(self, scan: Scan) -> None:
        self.scan = scan

    def make_node(self, *inputs: Variable) -> Apply:
        """Apply the Op to the inputs of a Scan node."""
        node = self.scan.make_node(*inputs)
        return Apply(self, list(node.inputs), [variable.type() for variable in node.outputs])

    def infer_shape(self, node: Apply, shapes: Any) -> Any:
        """Return the shapes of the Scan's outputs."""
        return self.scan.infer_shape(node, shapes)

    def do_constant_folding(self, *_: object) -> bool:
        """Return False: loops over constants run at run time."""
        return False

    def perform(self, node: Apply, inputs: Any, output_storage: Any) -> None:
        """Run the loop, if a graph is evaluated while it is being compiled."""
        self.scan.perform(node, inputs, output_storage)

    def __str__(self) -> str:
        return f"Sealed{{{self.scan}}}"


def seal(fgraph: FunctionGraph) -> None:
    """Hide every Scan of ``fgraph`` from rewrites that match Scans.

    A Scan that works in place stays, because PyTensor must know which inputs it overwrites.
    """

    def sealed(op: Op) -> Op | None:
        return SealedScan(op) if isinstance(op, Scan) and not op.destroy_map else None

    _replace_ops(fgraph, sealed, "scanopt_seal")


def unseal(fgraph: FunctionGraph) -> None:
    """Undo `seal`."""
    _replace_ops(
        fgraph, lambda op: op.scan if isinstance(op, SealedScan) else None, "scanopt_unseal"
    )


def _replace_ops(
    fgraph: FunctionGraph, replacement: Callable[[Any], Op | None], reason: str
) -> None:
    for node in fgraph.toposort():
        op = replacement(node.op)
        if op is not None:
            new: Apply = op.make_node(*node.inputs)
            pairs = list(zip(node.outputs, new.outputs, strict=True))
            fgraph.replace_all(pairs, reason=reason)
