"""What the loops of a graph are once PyTensor has rewritten it to compile it.

So a rule tells what PyTensor leaves, not what it does anyway. Nothing is compiled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import thread_time
from typing import Any

import numpy as np
from pytensor.compile.aliasing import Supervisor
from pytensor.compile.mode import Mode, get_mode
from pytensor.compile.ops import DeepCopyOp
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.scalar.basic import ScalarOp
from pytensor.tensor.basic import Alloc, AllocEmpty, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.shape import Shape_i
from pytensor.tensor.subtensor import IncSubtensor

from scanopt_cli.analysis.named_loops import NamedLoop
from scanopt_cli.autodiff.stages import NotCountedError, rewrite_as_pytensor
from scanopt_cli.ir.scan_view import ScanView, scan_op
from scanopt_cli.ir.slots import TRACED, Slot, SlotKind
from scanopt_cli.pipeline.grammar import parse
from scanopt_cli.pipeline.runner import run_pipeline
from scanopt_cli.rules.titled_copies import titled_copy, titles_of

_SECONDS = 5.0
"""The processor time that PyTensor may take to rewrite a graph; then nothing is known of it."""
_MANY = 1_000
"""A number in place of lengths that are not known."""

type CompiledLoops = Mapping[str, ScanView]
"""The Scans that are left, by the titles of those that they were."""


def compiled_loops(
    fgraph: FunctionGraph, loops: Sequence[NamedLoop], passes: str | None = None
) -> CompiledLoops | None:
    """Return what Scans of ``fgraph`` itself are in the end, after ``passes`` if there are any.

    ``None`` if PyTensor takes too long.
    """
    work, _ = titled_copy(fgraph, loops)
    if passes is not None:
        run_pipeline(work, parse(passes))
    work.attach_feature(Supervisor(list(work.inputs)))
    try:
        rewrite_as_pytensor(work, thread_time() + _SECONDS, _mode())
    except NotCountedError:
        return None
    return _by_title(work, loops)


def _mode() -> Mode:
    """Return PyTensor's default, without fusion, which leaves loops as they are and takes long."""
    mode: Mode = get_mode("NUMBA").excluding("fusion")
    return mode


def _by_title(work: FunctionGraph, loops: Sequence[NamedLoop]) -> CompiledLoops:
    views = [ScanView.of(node) for node in work.toposort() if scan_op(node) is not None]
    return {title: view for view in views for title in titles_of(view.op, loops)}


def rows_kept(view: ScanView | None) -> int | None:
    """Return how many rows the buffers of a loop have, if unknown lengths were a thousand.

    ``None`` if that cannot be told; 0 if there is no such loop.
    """
    total, numbers = 0, _Numbers()
    for slot in () if view is None else view.of_kind(*TRACED):
        found = _rows(slot, view.batch_ndim if view is not None else 0, numbers)
        if found is None:
            return None
        total += int(found)
    return total


def _rows(slot: Slot, axis: int, numbers: _Numbers) -> Any:
    if slot.kind is SlotKind.NIT_SOT:
        return numbers.of(slot.outer_input)
    buffer = slot.outer_input
    while (node := buffer.owner) is not None and isinstance(node.op, IncSubtensor | DeepCopyOp):
        buffer = node.inputs[0]
    known = buffer.type.shape[axis]
    if known is None and node is not None and isinstance(node.op, Alloc | AllocEmpty):
        lengths = node.inputs[isinstance(node.op, Alloc) :]
        known = numbers.of(lengths[axis])
    return known


class _Numbers:
    """Computes whole numbers of lengths and counts, each expression once."""

    def __init__(self) -> None:
        self._known: dict[Variable, Any] = {}

    def of(self, variable: Variable) -> Any:
        """Return the value of a number, if it is known.

        The loops of a batch have numbers each; these are not one.
        """
        if variable not in self._known:
            self._known[variable] = self._read(variable)
        return self._known[variable]

    def _read(self, variable: Variable) -> Any:
        node = variable.owner
        if isinstance(variable, Constant):
            data = np.asarray(variable.data)
            return data.item() if data.size == 1 else None
        if node is None or isinstance(node.op, Shape_i):
            return np.int64(_MANY)
        if isinstance(node.op, TensorFromScalar | ScalarFromTensor):
            return self.of(node.inputs[0])
        function = node.op.scalar_op if isinstance(node.op, Elemwise) else node.op
        values = [self.of(operand) for operand in node.inputs]
        if not isinstance(function, ScalarOp) or None in values:
            return None
        found = function.impl(*values)
        return found[node.outputs.index(variable)] if isinstance(found, tuple | list) else found
