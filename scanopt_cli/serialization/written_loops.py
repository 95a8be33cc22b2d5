"""Where loops were written, in files: apart from the Ops, which constructors make anew.

An entry is the path to a loop, and what `Written` says of it. The path is the row of the graph's
table of Ops, and then, for a loop inside of another Op, the place of an inner graph and that of a
node in it, in turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pytensor.graph.op import Op
from pytensor.scan.op import Scan

from scanopt_cli.ir.inner_graphs import core_op, inner_graphs
from scanopt_cli.ir.slots import HasSlots
from scanopt_cli.ir.written import Written, mark, written

type Entry = tuple[tuple[int, ...], tuple[str, int, str, tuple[str | None, ...]]]

_MOST = 100_000
_MOST_LETTERS = 1_000
_MOST_LINES = 10**9


def entries(ops: Sequence[Op]) -> list[Entry]:
    """Return the entries of the loops among ``ops``, the rows of a table, and inside of them."""
    seen: set[int] = set()
    return [entry for row, op in enumerate(ops) for entry in _entries(op, (row,), seen)]


def _entries(op: Op, path: tuple[int, ...], seen: set[int]) -> Iterator[Entry]:
    found = written(op)
    if found is not None and all(map(_is_short, (found.file, found.function, *found.arguments))):
        yield path, (found.file, found.line, found.function, found.arguments)
    for i, graph in enumerate(inner_graphs(op)):
        if id(graph) not in seen:
            seen.add(id(graph))
            for k, node in enumerate(graph.toposort()):
                yield from _entries(node.op, (*path, i, k), seen)


def _is_short(text: str | None) -> bool:
    return text is None or len(text) <= _MOST_LETTERS


def mark_loops(ops: Sequence[Op], found: Any) -> None:
    """Mark the loops among ``ops``, and inside of them, as a file says.

    Raises
    ------
    Exception
        Of some kind, if ``found`` is no list of entries for ``ops``.
    """
    if len(found) > _MOST:
        raise ValueError(f"it says of more than {_MOST:,} loops where they were written")
    for path, (file, line, function, arguments) in found:
        texts = [file, function, *(a for a in arguments if a is not None)]
        if not all(type(text) is str and _is_short(text) for text in texts):
            raise ValueError("a loop was written in what is no name of a file or a function")
        if type(line) is not int or not 0 <= line <= _MOST_LINES:
            raise ValueError("a loop was written in a line of no number")
        if not all(type(place) is int and place >= 0 for place in path):
            raise ValueError("the place of a loop is no number")
        row, *rest = path
        op = ops[row]
        for i, k in zip(rest[::2], rest[1::2], strict=True):
            op = inner_graphs(op)[i].toposort()[k].op
        if not isinstance(core_op(op), Scan | HasSlots):  # others may be PyTensor's own objects
            raise ValueError(f"{type(op).__name__} is said to be a loop")
        mark(op, Written(file, line, function, tuple(arguments)))
