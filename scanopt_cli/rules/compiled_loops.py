"""What the loops of a graph are once PyTensor has rewritten it to compile it.

So a rule tells what PyTensor leaves, not what it does anyway. Nothing is compiled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import thread_time
from typing import Any

import numpy as np
from pytensor.compile.aliasing import Supervisor
from pytensor.compile.mode import Mode, get_mode
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import AbstractFunctionGraph, FunctionGraph
from pytensor.scalar.basic import ScalarOp
from pytensor.tensor.basic import Alloc, AllocEmpty, ScalarFromTensor, TensorFromScalar
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.shape import Shape_i
from pytensor.tensor.subtensor import IncSubtensor, Subtensor

from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.named_loops import Holder, NamedLoop
from scanopt_cli.autodiff.stages import RewriteTimeoutError, rewrite_as_pytensor
from scanopt_cli.ir.copies import copied
from scanopt_cli.ir.inner_graphs import inner_graphs
from scanopt_cli.ir.scan_view import ScanView, scan_op
from scanopt_cli.ir.slots import TRACED, Slot, SlotKind
from scanopt_cli.pipeline.grammar import parse
from scanopt_cli.pipeline.runner import run_pipeline
from scanopt_cli.rules.titled_copies import titled_copy, titles_of

_SECONDS = 5.0
"""The processor time that PyTensor may take to rewrite a graph; then nothing is known of it."""
_MANY = 1_000
"""A number in place of lengths that are not known."""


@dataclass(frozen=True, slots=True)
class CompiledLoop:
    """What a Scan is in the end, and the numbers of the graph that it is in."""

    view: ScanView
    numbers: Numbers


type CompiledLoops = Mapping[str, Sequence[CompiledLoop]]
"""The Scans that are left, by the titles of those that they were."""


def compiled_loops(
    fgraph: FunctionGraph, loops: Sequence[NamedLoop], passes: str | None = None
) -> CompiledLoops | None:
    """Return what Scans of ``fgraph`` and its bodies are in the end, after ``passes`` if any.

    PyTensor rewrites a body with all that it does to a graph, loops in it included, once the graph
    around it is done. Before, it may have taken a loop out of the body that it is in.

    ``None`` if PyTensor takes too long.
    """
    work, _ = titled_copy(fgraph, loops)
    if passes is not None:
        run_pipeline(work, parse(passes))
    work.attach_feature(Supervisor(list(work.inputs)))
    try:
        rewrite_as_pytensor(work, thread_time() + _SECONDS, _mode())
    except RewriteTimeoutError:
        return None
    by_title: dict[str, list[CompiledLoop]] = {}
    for found in scans_in(work):
        for title in titles_of(found.view.op.name, loops):
            by_title.setdefault(title, []).append(found)
    return by_title


def _mode() -> Mode:
    """Return PyTensor's default, without fusion, which leaves loops as they are and takes long."""
    mode: Mode = get_mode("NUMBA").excluding("fusion")
    return mode


def scans_in(graph: AbstractFunctionGraph) -> Iterator[CompiledLoop]:
    """Yield the Scans of a graph, and of its bodies, each of which is entered once."""
    return _scans(graph, Numbers(), set())


def _scans(
    graph: AbstractFunctionGraph, numbers: Numbers, seen: set[int]
) -> Iterator[CompiledLoop]:
    for node in graph.toposort():
        if scan_op(node) is not None:
            yield CompiledLoop(ScanView.of(node), numbers)
        for body in inner_graphs(node.op):
            if id(body) not in seen:
                seen.add(id(body))
                yield from _scans(body, numbers.inside(node), seen)


def rows_kept(loops: Iterable[CompiledLoop]) -> int | None:
    """Return how many rows the buffers of loops have, if unknown lengths were a thousand.

    ``None`` if that cannot be told; 0 if there is no loop.
    """
    total = 0
    for loop in loops:
        for slot in loop.view.of_kind(*TRACED):
            found = _rows(slot, loop.view.batch_ndim, loop.numbers)
            if found is None:
                return None
            total += int(found)
    return total


def _rows(slot: Slot, axis: int, numbers: Numbers) -> Any:
    if slot.kind is SlotKind.NIT_SOT:
        return numbers.of(slot.outer_input)
    buffer, numbers = numbers.source(slot.outer_input)
    while (earlier := _earlier(buffer)) is not None:
        buffer, numbers = numbers.source(earlier)
    node = buffer.owner
    known = buffer.type.shape[axis]
    if known is None and node is not None and isinstance(node.op, Alloc | AllocEmpty):
        lengths = node.inputs[isinstance(node.op, Alloc) :]
        known = numbers.of(lengths[axis])
    return known


def _earlier(buffer: Any) -> Any:
    """Return the buffer of as many rows that a buffer was made from, ``None`` if there is none."""
    is_written = isinstance(buffer.owner_op, IncSubtensor)
    return buffer.owner.inputs[0] if is_written else copied(buffer)


class Numbers:
    """Computes whole numbers of lengths and counts of one graph, each expression once.

    Those of a body read what is given to the node around it.
    """

    def __init__(self, holder: Holder | None = None, around: Numbers | None = None) -> None:
        self._known: dict[Variable, Any] = {}
        self._lengths = Lengths()
        self._holder = holder
        self._around = around
        given = {} if holder is None else holder.given
        # A batched node gives its body an entry of what it is given.
        is_batched = holder is not None and isinstance(holder.node.op, Blockwise)
        self._given = {} if is_batched else given
        self._batches = given if is_batched else {}

    def inside(self, node: Apply) -> Numbers:
        """Return the numbers of the body of a node of the graph."""
        return Numbers(Holder(node, {}, self._holder), self)

    def source(self, variable: Variable) -> tuple[Any, Numbers]:
        """Return what a variable is in the graph that computes it, and the numbers of that."""
        numbers = self
        while variable in numbers._given:
            variable = numbers._given[variable]
            assert numbers._around is not None
            numbers = numbers._around
        return variable, numbers

    def of(self, variable: Variable) -> Any:
        """Return the value of a number, if it is known.

        The loops of a batch have numbers each; these are not one. Nor are those that each step of
        a loop around has another of.
        """
        if variable not in self._known:
            source, numbers = self.source(variable)
            self._known[variable] = self._read(variable) if numbers is self else numbers.of(source)
        return self._known[variable]

    def _read(self, variable: Variable) -> Any:
        node = variable.owner
        if isinstance(variable, Constant):
            data = np.asarray(variable.data)
            return data.item() if data.size == 1 else None
        if node is None and self._around is not None:
            batch = self._batches.get(variable)
            return None if batch is None else self._around.of(batch)
        if node is None:
            return np.int64(_MANY)
        if isinstance(node.op, Shape_i):
            array, _ = self.source(node.inputs[0])
            length = array.type.shape[node.op.i]
            return np.int64(_MANY if length is None else length)
        if isinstance(node.op, TensorFromScalar | ScalarFromTensor | DimShuffle):
            return self.of(node.inputs[0])
        if isinstance(node.op, Subtensor):
            # PyTensor leaves the bodies of batched loops as they are.
            length = self._lengths.value_of(variable)
            return np.int64(length.constant) if length.is_constant else None
        function = node.op.scalar_op if isinstance(node.op, Elemwise) else node.op
        values = [self.of(operand) for operand in node.inputs]
        if not isinstance(function, ScalarOp) or None in values:
            return None
        found = function.impl(*values)
        return found[node.outputs.index(variable)] if isinstance(found, tuple | list) else found
