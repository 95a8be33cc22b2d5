"""Copies through which PyTensor's trimming and merging of loops do not look."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pytensor.compile.ops import deep_copy_op
from pytensor.graph.basic import Apply
from pytensor.tensor.subtensor import Subtensor

from scanopt_cli.passes.base import Site
from scanopt_cli.passes.trimmed_reads import unsafe_readers
from scanopt_cli.scans.buffers import is_trimmed
from scanopt_cli.scans.lengths import Lengths, Linear
from scanopt_cli.scans.reads import is_strip, number, row_index
from scanopt_cli.scans.view import TRACED, ScanView, Slot, SlotKind, scan_op

type Readers = list[tuple[Any, int]]


def copy_buffers(site: Site) -> bool:
    """Give mit_sots with equal taps and equal buffers a buffer each; whether any needed one."""
    changed = False
    for view in _loops(site):
        seen: set[tuple[object, bytes]] = set()
        copied = []
        for slot in view.of_kind(SlotKind.MIT_SOT):
            while (slot.taps, site.same(slot.outer_input)) in seen:
                slot.outer_input = deep_copy_op.make_node(slot.outer_input).outputs[0]
                copied.append(slot)
            seen.add((slot.taps, site.same(slot.outer_input)))
        if copied and site.budget.spend():
            site.changed(view, f"made a buffer of its own for {len(copied)} of its mit_sots")
            site.fgraph.replace_all(list(view.rebuild().items()), reason=site.pass_name)
            changed = True
    return changed


def copy_rows(site: Site) -> bool:
    """Let readers that PyTensor would misunderstand read a copy; whether there were any."""
    changed = False
    for view in _loops(site):
        names = site.names(view)
        for slot, readers in _misunderstood(view, site):
            if not site.budget.spend():
                break
            assert slot.outer_output is not None
            site.changed(view, f"readers of `{names[slot]}` read a copy of it")
            copied = deep_copy_op.make_node(slot.outer_output).outputs[0]
            for reader, position in readers:
                site.fgraph.change_node_input(reader, position, copied, reason=site.pass_name)
            changed = True
    return changed


def _loops(site: Site) -> Iterator[ScanView]:
    for node in site.fgraph.toposort():
        if node in site.fgraph.apply_nodes and scan_op(node) is node.op is not None:
            yield ScanView.of(node)


def _misunderstood(view: ScanView, site: Site) -> Iterator[tuple[Slot, Readers]]:
    """Yield the slots some of whose readers PyTensor misunderstands, with these."""
    lengths = Lengths(view.n_steps)
    keeps_steps = view.is_while or bool(view.of_kind(SlotKind.UNTRACED)) or _needs_all(view, site)
    for slot in view.of_kind(*TRACED):
        if view.is_while or is_trimmed(view, slot, lengths):
            found = unsafe_readers(view, slot, site.clients, lengths)
        else:
            found = [
                (node, 0)
                for node in _slicing(slot, site)
                if not all(
                    _is_understood(view, slot, read, lengths, keeps_steps=keeps_steps)
                    for read in _reads(node, slot, site)
                )
            ]
        if found:
            keeps_steps = True
            yield slot, found
    for slot in view.of_kind(SlotKind.MIT_MOT):
        found = [(node, 0) for node in _slicing(slot, site)]
        if found and not keeps_steps:
            keeps_steps = True
            yield slot, found


def _slicing(slot: Slot, site: Site) -> list[Apply]:
    """Return who indexes the output of a slot."""
    readers = site.clients(slot.outer_output)
    return [node for node, position in readers if isinstance(node.op, Subtensor) and not position]


@dataclass(frozen=True, slots=True)
class _Read:
    """What a reader takes of the rows, of all of them or of those behind the initial ones."""

    index: Any
    is_stripped: bool


def _reads(node: Apply, slot: Slot, site: Site) -> Iterator[_Read]:
    index = row_index(node, 0)
    if isinstance(index, slice) and is_strip(index, slot.reach):
        for reader, position in site.clients(node.outputs[0]):
            if isinstance(reader.op, Subtensor) and not position:
                yield _Read(row_index(reader, 0), is_stripped=True)
    else:
        yield _Read(index, is_stripped=False)


def _is_understood(
    view: ScanView, slot: Slot, read: _Read, lengths: Lengths, *, keeps_steps: bool
) -> bool:
    """Whether PyTensor's trimming keeps what is read, but for errors.

    With ``keeps_steps`` it runs all steps; else it may run fewer.
    """
    index = read.index
    if not isinstance(index, slice) or number(index.step, 1) != 1:
        return True
    steps = lengths.value_of(view.n_steps)
    start, stop = number(index.start, 0), number(index.stop)

    def exists(row: int) -> bool:
        return lengths.at_most(Linear(-row), steps)

    if start is not None and start < 0:
        if index.stop is None:
            # However few the last rows of a state are, PyTensor counts them as it should.
            return (slot.reach > 0 and read.is_stripped) or exists(start)
        return stop is not None and stop < 0 and exists(start)
    if keeps_steps or index.stop is None:
        return True
    return start is not None and stop is not None and (stop >= 0 or exists(stop))


def _needs_all(view: ScanView, site: Site) -> bool:
    """Whether something reads an output so that PyTensor sees that all steps are needed."""
    return any(
        _reads_all(reader, position, site) or _reads_last(reader, site)
        for slot in view.outputs()
        for reader, position in site.clients(slot.outer_output)
    )


def _reads_all(node: Apply, position: int, site: Site) -> bool:
    """Whether a node reads an output as a whole, or what is behind an open slice of it."""
    if not isinstance(node.op, Subtensor) or position:
        return True
    index = row_index(node, 0)
    return (
        isinstance(index, slice)
        and index.stop is None
        and any(
            not isinstance(reader.op, Subtensor) or place
            for reader, place in site.clients(node.outputs[0])
        )
    )


def _reads_last(node: Apply, site: Site) -> bool:
    """Whether a node reads the last row of an output, directly or behind an open slice."""
    index = row_index(node, 0)
    if isinstance(index, slice):
        is_open = index.stop is None and number(index.step, 1) == 1
        return is_open and any(_is_last(reader) for reader, _ in site.clients(node.outputs[0]))
    return _is_last(node)


def _is_last(node: Apply) -> bool:
    index = row_index(node, 0)
    return index is not None and not isinstance(index, slice) and number(index) == -1
