"""Reads of rows that PyTensor gets wrong when it shortens a loop or its buffers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.scan.rewriting.trace import scan_reduce_nsteps, scan_reduce_trace_prealloc
from pytensor.tensor.subtensor import Subtensor

from scanopt_cli.analysis.accesses.indices import RowIndex, read_index
from scanopt_cli.analysis.lengths import Lengths
from scanopt_cli.analysis.named_loops import NamedLoop, named_loops
from scanopt_cli.ir.graph import copy_nodes
from scanopt_cli.ir.indexing import number
from scanopt_cli.ir.scan_view import ScanView
from scanopt_cli.ir.slots import TRACED, Slot, SlotKind
from scanopt_cli.passes.simplify.sound_rewriters import sound_rewriter
from scanopt_cli.pipeline.grammar import parse
from scanopt_cli.pipeline.runner import run_pipeline
from scanopt_cli.rules.miscompiled.upstream_answers import Misread, changes_reads

# Two numbers of rows, by which to see whether an index counts from the first or from the last.
_ROWS = (97, 101)


@dataclass(frozen=True, slots=True)
class Read:
    """One read of a buffer: the index that PyTensor composes of all that lead to it.

    ``index`` is a number, or a slice of numbers and variables; ``text`` is as it was written.
    """

    index: Any
    text: str

    @property
    def row(self) -> int | None:
        """The row that is read, if it is one."""
        return self.index if isinstance(self.index, int) else None


def reads_of(loop: NamedLoop, slot: Slot) -> list[Read] | None:
    """Return all reads of an output, ``None`` if somebody reads it otherwise, or in whole."""
    found: list[Read] = []
    waiting: list[tuple[Variable, tuple[RowIndex, ...]]] = [(slot.output, ())]
    while waiting:
        variable, path = waiting.pop()
        for node, position in loop.clients(variable):
            index = read_index(node, 0) if isinstance(node.op, Subtensor) else None
            if index is None or position:
                return None
            chain = (*path, index)
            read = _composed(chain, slot.n_initial)
            clients = loop.clients(node.outputs[0])
            is_slice = index.is_slice and not index.rest
            if read is not None and (not is_slice or not _is_read_on(clients)):
                found.append(read)
            elif is_slice and index.in_numbers is not None and clients and len(path) < 4:
                waiting.append((node.outputs[0], chain))
            else:
                return None
    return found


def _is_read_on(clients: Sequence[Any]) -> bool:
    """Whether what a slice reads is indexed once more by all its readers."""
    return bool(clients) and all(
        isinstance(getattr(node, "op", None), Subtensor) and not position
        for node, position in clients
    )


def _composed(chain: Sequence[RowIndex], n_initial: int) -> Read | None:
    """Return the index that a chain of indices is, ``None`` if it reads from the first step on."""
    text = f"[{chain[-1]}]"
    last = chain[-1].value
    numbers = [index.in_numbers for index in chain]
    before = numbers[:-1]
    strips = before == [slice(n_initial, None)]
    if isinstance(last, slice) and (not before or strips):
        shift = n_initial if strips else 0
        start, stop = number(last.start, 0), number(last.stop)
        if start is None and last.start is not None:
            start_at: Any = last.start
        elif start is None or start == 0:
            return None
        else:
            start_at = start + shift if start > 0 else start
        if stop is None:
            stop_at: Any = last.stop
            if stop_at is not None and shift:
                stop_at = stop_at + shift
        else:
            stop_at = stop + shift if stop >= 0 else stop
        return Read(slice(start_at, stop_at, last.step), text)
    if any(index is None for index in numbers) or isinstance(last, slice):
        return None
    rows = []
    for length in _ROWS:
        row: Any = np.arange(length)
        try:
            for index in numbers:
                row = row[index]
        except IndexError:
            return None
        rows.append(int(row))
    if rows[0] == rows[1]:
        return Read(rows[0], text)
    ends = [row - length for row, length in zip(rows, _ROWS, strict=True)]
    return Read(ends[0], text) if ends[0] == ends[1] else None


def misread_rows(loop: NamedLoop) -> Iterator[Misread]:
    """Yield the reads of a loop that ``scan_reduce_nsteps`` and ``scan_reduce_trace`` get wrong."""
    view = loop.view
    if not isinstance(view, ScanView) or view.batch_ndim:
        return
    reads = {slot: reads_of(loop, slot) for slot in view.of_kind(*TRACED)}
    lengths = Lengths(view.n_steps)
    steps: Any = view.n_steps
    if lengths.steps.is_constant:
        steps = pt.constant(lengths.steps.constant, dtype="int64")
    if view.is_while:
        yield from _of_while(loop, view, reads, steps, lengths)
    else:
        yield from _of_few_steps(loop, view, reads, steps, lengths)


type _Reads = Mapping[Slot, list[Read] | None]


def _indices(view: ScanView, reads: _Reads, *slots: Slot) -> dict[int, list[Any]]:
    return {
        view.node.outputs.index(slot.output): [read.index for read in reads[slot] or ()]
        for slot in slots
    }


def _of_while(
    loop: NamedLoop, view: ScanView, reads: _Reads, steps: Variable, lengths: Lengths
) -> Iterator[Misread]:
    """Rows that are counted from the first, of a loop whose most steps are known.

    PyTensor counts them from the last step that the loop may take.
    """
    if not lengths.steps.is_constant:
        return
    for slot in view.of_kind(*TRACED):
        found = reads[slot]
        if not found:
            continue
        wrong = [read for read in found if _counts_from_first(read)]
        indices = _indices(view, reads, slot)
        if wrong and changes_reads(scan_reduce_trace_prealloc, view.node, indices, steps):
            texts = ", ".join(f"`{loop.names[slot]}{read.text}`" for read in wrong)
            yield Misread(
                f"compiled, {texts} is another row if the loop stops before step "
                f"{lengths.steps}: scan_reduce_trace counts from there",
                (slot,),
            )


def _counts_from_first(read: Read) -> bool:
    if isinstance(read.index, slice):
        return isinstance(read.index.start, int) and read.index.start > 0
    return isinstance(read.index, int) and read.index > 0


def _of_few_steps(
    loop: NamedLoop, view: ScanView, reads: _Reads, steps: Variable, lengths: Lengths
) -> Iterator[Misread]:
    """The last rows of a map that may have fewer, and slices that end at a row by its number."""
    for slot in view.of_kind(SlotKind.NIT_SOT):
        found = reads[slot]
        if not found or slot.outer_input is not view.n_steps:
            continue
        short = [read for read in found if _is_too_long(read, lengths)]
        indices = _indices(view, reads, slot)
        if short and changes_reads(scan_reduce_trace_prealloc, view.node, indices, steps):
            least = max(-read.index.start for read in short)
            texts = ", ".join(f"`{loop.names[slot]}{read.text}`" for read in short)
            yield Misread(
                f"compiled, {texts} has rows that no step wrote if there are fewer than {least}: "
                "scan_reduce_trace makes a buffer of as many",
                (slot,),
            )


def _is_too_long(read: Read, lengths: Lengths) -> bool:
    """Whether a slice asks for more last rows than there may be."""
    index = read.index
    return (
        isinstance(index, slice)
        and isinstance(index.start, int)
        and index.start < -1
        and index.stop is None
        and number(index.step, 1) == 1
        and not lengths.runs(-index.start)
    )


def misread_gradients(fgraph: FunctionGraph) -> Iterator[tuple[str, Misread]]:
    """Yield the names of loops whose mit_mots ``scan_reduce_nsteps`` reads other rows of.

    It leaves steps out if no output is read at its last row, and counts the rows of gradients as if
    their buffers were shorter then. Readers are composed as PyTensor does before.
    """
    cleaned = copy_nodes(fgraph)
    run_pipeline(cleaned, parse("clean-slices"), rounds=1)
    if not any(map(_misread_mit_mots, _outer_loops(cleaned))):
        return
    simplified = copy_nodes(fgraph)
    sound_rewriter(simplified, "").rewrite(simplified)
    for loop in _outer_loops(simplified):
        found = _misread_mit_mots(loop)
        if found:
            text = (
                "compiled, a gradient is wrong: scan_reduce_nsteps reads another row of "
                f"{loop.quoted(found)}"
            )
            yield loop.title, Misread(text, tuple(found))


def _outer_loops(fgraph: FunctionGraph) -> list[NamedLoop]:
    """Return the loops with mit_mots that are in no body."""
    return [
        loop
        for loop in named_loops(fgraph)
        if len(loop.path) == 1
        and isinstance(loop.view, ScanView)
        and not loop.view.batch_ndim
        and loop.view.of_kind(SlotKind.MIT_MOT)
    ]


def _misread_mit_mots(loop: NamedLoop) -> list[Slot]:
    """Return the mit_mots that are read by rows, none of them the last, as all else is."""
    view = loop.view
    assert isinstance(view, ScanView)
    reads: _Reads = {slot: reads_of(loop, slot) for slot in view.outputs()}
    found = [slot for slot in view.of_kind(SlotKind.MIT_MOT) if reads[slot]]
    read = [slot for slot in reads if loop.graph.clients.get(slot.output)]
    rows = [each.row for slot in read for each in reads[slot] or ()]
    if view.is_while or not found or any(not reads[slot] for slot in read):
        return []
    if any(row is None or row >= -1 for row in rows):
        return []
    indices = _indices(view, reads, *read)
    is_changed = changes_reads(scan_reduce_nsteps, view.node, indices, view.n_steps.type())
    return found if is_changed else []
