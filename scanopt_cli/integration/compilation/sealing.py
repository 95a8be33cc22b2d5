"""Hide loops from PyTensor's own rewrites of loops.

PyTensor rewrites every `Scan`, and some of these rewrites are unsound. While a graph is compiled
with scanopt's passes, its loops are *sealed*: an Op of another class, which none of PyTensor's
rewrites of loops matches, replaces each. Other rewrites see an ordinary Op with a known shape. The
loops are unsealed before PyTensor prepares them to run (in-place rewrites, bodies for the backend).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.scan.op import Scan

from scanopt_cli.passes.of_scans.compile_safe.unit_lengths import loop_of_narrower


class SealedScan(Op):
    """A `Scan` that rewrites do not recognise as one.

    ``kinds`` are the types of its inputs when it was sealed. PyTensor may find out more about them
    while the loop is hidden.
    """

    __props__ = ("scan", "kinds")

    def __init__(self, scan: Scan, kinds: tuple[Any, ...]) -> None:
        self.scan = scan
        self.kinds = kinds

    def make_node(self, *inputs: Variable) -> Apply:
        """Apply the Op to the inputs of a Scan, of the types that they had or narrower ones."""
        node = self.scan.make_node(*(kind() for kind in self.kinds))
        return Apply(self, list(inputs), [variable.type() for variable in node.outputs])

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

    for node in fgraph.toposort():
        if isinstance(node.op, Scan) and not node.op.destroy_map:
            sealed = SealedScan(node.op, tuple(variable.type for variable in node.inputs))
            made: Any = sealed.make_node(*node.inputs)
            _replace(fgraph, node, made.outputs, "scanopt_seal")


def unseal(fgraph: FunctionGraph) -> None:
    """Undo `seal`."""
    for node in fgraph.toposort():
        if isinstance(node.op, SealedScan):
            op: SealedScan = node.op
            try:
                made: Sequence[Variable] = op.scan.make_node(*node.inputs).outputs
            except (TypeError, ValueError):
                made = loop_of_narrower(op.scan, node.inputs, op.kinds, node.outputs)
            _replace(fgraph, node, made, "scanopt_unseal")


def _replace(fgraph: FunctionGraph, node: Apply, made: Sequence[Variable], reason: str) -> None:
    pairs = [
        (old, old.type.filter_variable(new, allow_convert=True))
        for old, new in zip(node.outputs, made, strict=True)
    ]
    fgraph.replace_all(pairs, reason=reason)
