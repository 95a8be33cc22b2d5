"""Where loops were written: the line of the user's program, and what its step calls its arguments.

PyTensor keeps the stack of callers of each variable, but not of those inside of a body, and names
neither survives differentiation nor freezing. So a loop's Op carries both, as an attribute that
equality ignores: `capture` and `enabled` set it when ``scan`` is called, files hold it, and passes
hand it on. A loop without it is located by the stack of its outputs.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path, PurePath
from types import FrameType
from typing import Any, NamedTuple

import pytensor
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op

from scanopt_cli.environment import INSTALLED
from scanopt_cli.ir.inner_graphs import PULLBACK, core_op, op_name, with_core

ATTRIBUTE = "written"
"""The attribute of a loop's Op. It is a plain tuple: a pickle of the Op shall not need scanopt."""

_OUTSIDE = ("pytensor", "scanopt_cli", "python")
_PYTHONS = re.compile(r"/lib/python3\.\d+/")
_ROOTS = {
    str(Path(pytensor.__file__).parent): "pytensor",
    str(Path(__file__).parents[1]): "scanopt_cli",
}
"""Where they are, if they are not installed as libraries are: in a copy to work on, say."""


_REWRITING = (("pymc", "pytensorf.py"), ("pymc", "logprob"))
"""Where libraries rewrite the user's graphs: before derivatives, or for a log-density."""
_DENSITIES = ("pymc", "logprob", "basic.py")
_ASKS_FOR_DENSITY = "conditional_logp"
"""Where PyMC asks distributions for their log-densities."""
_REWRITER = ("pytensor", "graph", "rewriting")
"""What calls functions that rewrite nodes."""
_REWRITES = re.compile(
    r"\b(rewrite|rewrite_\w+|vectorize_graph|clone_replace|graph_replace|function)\("
)
"""A line that lets PyTensor rewrite, copy or compile a graph: the loops made there are copies."""
_SCANS = re.compile(r"\bscan\(")


type Frame = tuple[str, int, str, Any]
"""File, line, function and source of a call, as in PyTensor's stacks."""


class Written(NamedTuple):
    """Where a loop was written.

    Attributes
    ----------
    file
        The file, relative to the directory that scanopt runs in, or to the package of a library;
        the name alone, if the file is in neither.
    line
        The number of the line that calls ``scan``; 0 if it is not known.
    function
        The function that the line is in, or ``<module>``.
    arguments
        What the step calls what it reads, by slot, in the order of `SlotView.slots`; ``None`` for
        what it does not name. Empty if nothing is known.
    """

    file: str
    line: int
    function: str
    arguments: tuple[str | None, ...] = ()

    @property
    def place(self) -> str | None:
        """``model.py:41 in step``; ``None`` if it is not known."""
        if not self.line:
            return None
        within = "" if self.function == "<module>" else f" in {self.function}"
        return f"{self.file}:{self.line}{within}"


def written(op: Op) -> Written | None:
    """Return what a loop's Op, or a Blockwise of it, says of where it was written."""
    found = vars(core_op(op)).get(ATTRIBUTE)
    return None if found is None else Written(*found)


def written_at(node: Apply) -> Written | None:
    """Return where a loop was written: what its Op says, or else the stack of its outputs."""
    known = written(node.op)
    if known is not None:
        return known
    if op_name(node.op).startswith(PULLBACK):  # made where the gradient was asked for
        return None
    traces = (getattr(output.tag, "trace", None) for output in node.outputs)
    return next((found for trace in traces if (found := from_stacks(trace)) is not None), None)


def place_of(node: Apply) -> str | None:
    """Return where a loop was written, as a text: ``model.py:41 in step``."""
    found = written_at(node)
    return None if found is None else found.place


def mark(op: Op, found: Written) -> None:
    """Let a new loop's Op say where it was written."""
    setattr(core_op(op), ATTRIBUTE, tuple(found))


def marked(op: Op, found: Written) -> Op:
    """Return a copy of ``op``, a loop or a Blockwise of it, that says where it was written."""
    loop = copy(core_op(op))
    setattr(loop, ATTRIBUTE, tuple(found))
    return with_core(op, loop)


def keep(node: Apply, op: Op, arguments: Sequence[str | None] = ()) -> Op:
    """Return ``op``, a loop that replaces the one of ``node``, which says where that was written.

    It is marked itself, unless it is the loop of ``node``. ``arguments`` names its slots.
    """
    known = written_at(node) or Written("", 0, "")
    found = known._replace(arguments=tuple(arguments) if any(arguments) else ())
    if not (found.line or found.arguments) or written(op) == found:
        return op
    if op is core_op(node.op):
        return marked(op, found)
    mark(op, found)
    return op


def copy_mark(old: Op, new: Op) -> None:
    """Let ``new``, a loop with the slots of ``old``, say where that was written."""
    found = written(old)
    if found is not None:
        mark(new, found)


@dataclass(frozen=True, slots=True)
class Names:
    """Which loop a new one is made of, and what its step calls variables of the new body.

    If the loop was a Scan, ``kinds`` says what kinds of slots its states and constants belonged to,
    and ``traced`` those of traced values.
    """

    node: Apply
    arguments: Mapping[Variable, str] = field(default_factory=dict)
    kinds: Mapping[Variable, str] = field(default_factory=dict)
    traced: Sequence[str] = ()

    def give(self, op: Op, slots: Sequence[Variable]) -> None:
        """Let ``op``, whose slots are known by ``slots``, say where the loop was written."""
        keep(self.node, op, [self.arguments.get(variable) for variable in slots])


def from_stacks(stacks: Any) -> Written | None:
    """Return the innermost line of the user's program in ``stacks``, a value of ``tag.trace``.

    If there is none, a line of a library other than PyTensor that builds loops, such as PyMC. The
    stacks of loops that a library copied or rewrote say nothing, and of one that a distribution of
    a library made for its log-density, the line that asked for that says nothing.
    """
    if not isinstance(stacks, list | tuple):
        return None
    known = [list(reversed(list(stack))) for stack in stacks]
    return from_frames(
        [
            frame
            for stack in known
            if not _is_rewritten(stack)
            for frame in takewhile(lambda frame: not asks_for_density(frame), stack)
        ]
    )


def from_frames(frames: Sequence[Frame]) -> Written | None:
    """Return the first line of the user's program in ``frames``, or else of another library."""
    libraries = [_library(file) for file, *_ in frames]
    for wanted in (lambda library: library is None, lambda library: library not in _OUTSIDE):
        for (file, line, function, _), library in zip(frames, libraries, strict=True):
            if wanted(library):
                return Written(shown_path(file), line, function)
    return None


def is_of_program(file: str) -> bool:
    """Whether a file is the user's: of no installed library, and not Python's own."""
    return _library(file) is None


def asks_for_density(frame: Frame) -> bool:
    """Whether a call is the one by which PyMC asks a distribution for its log-density."""
    file, _, function, _ = frame
    return function == _ASKS_FOR_DENSITY and PurePath(file).parts[-3:] == _DENSITIES


def _is_rewritten(stack: Sequence[Frame]) -> bool:
    """Whether a stack, innermost frame first, is that of a rewrite, and not of who wrote a loop."""
    places = (i for i, (file, *_) in enumerate(stack) if _library(file) not in _OUTSIDE)
    first = next(places, None)
    if first is None:
        return False
    file, _, _, source = stack[first]
    parts = PurePath(file).parts
    if parts[-2:] in _REWRITING or parts[-3:-1] in _REWRITING:
        return True
    if first + 1 < len(stack) and PurePath(stack[first + 1][0]).parts[-4:-1] == _REWRITER:
        return True
    text = str(source or "")
    return _REWRITES.search(text) is not None and _SCANS.search(text) is None


def _library(file: str) -> str | None:
    """Return the library that a file belongs to, ``python`` for Python's own; else ``None``."""
    path = PurePath(file)
    for name in INSTALLED:
        if name in path.parts[:-1]:
            return path.parts[path.parts.index(name) + 1]
    for root, library in _ROOTS.items():
        if path.is_relative_to(root):
            return library
    is_pythons = file.startswith("<frozen ") or _PYTHONS.search(path.as_posix())
    return "python" if is_pythons else None


def shown_path(file: str) -> str:
    """Return a path relative to the present directory or to its library, or a name alone.

    The path may be from another machine: nothing is looked up.
    """
    parts = PurePath(file).parts
    for directory in INSTALLED:
        if directory in parts:
            return PurePath(*parts[parts.index(directory) + 1 :]).as_posix()
    try:
        here = PurePath(os.getcwd()).parts
    except OSError:  # it was removed
        here = ()
    if here and parts[: len(here)] == here and len(parts) > len(here):
        return PurePath(*parts[len(here) :]).as_posix()
    return parts[-1] if parts else file


def caller() -> Written | None:
    """Return the line of the program that calls scanopt or PyTensor now."""
    frame: FrameType | None = sys._getframe(1)
    stack: list[Frame] = []
    while frame is not None:
        stack.insert(0, (frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name, None))
        frame = frame.f_back
    return from_stacks([stack])
