"""Changes of an Op that is not a loop: in the properties it declares, else in its state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pytensor.graph.op import Op
from pytensor.tensor.elemwise import Elemwise

from scanopt_cli.diff.changes import Note
from scanopt_cli.diff.labels import op_label, shortened
from scanopt_cli.equivalence.encoding import state
from scanopt_cli.facts import Fact


@dataclass(frozen=True, slots=True)
class PropertyChange:
    """A property, its old and its new value; or, where no text shows these, a note."""

    aspect: str = ""
    before: str | None = None
    after: str | None = None
    notes: tuple[Fact, ...] = ()


_ADDRESS = " at 0x"
NO_TEXT = PropertyChange(notes=(Fact(Note.NO_TEXT),))


def changed_properties(before: Op, after: Op) -> list[PropertyChange]:
    """Return the differences between two Ops of different digests; at least one."""
    label, relabel = op_label(before), op_label(after)
    if type(before) is not type(after):
        return [PropertyChange("op", label, relabel)]
    different = list(_different(before, after))
    if label != relabel and (len(different) != 1 or isinstance(before, Elemwise)):
        return [PropertyChange("op", label, relabel)]
    return different or [NO_TEXT]


def _different(before: Op, after: Op) -> Iterator[PropertyChange]:
    others = dict(state(after))
    for name, value in state(before):
        other = others.get(name)
        if other is value:
            continue
        text, retext = repr(value), repr(other)
        if _ADDRESS in text and type(other) is type(value):
            # The texts hold addresses, not values.
            note = Fact(Note.ANOTHER_OBJECT, {"type": type(value).__name__})
            yield PropertyChange(name, notes=(note,))
        elif text != retext:
            text, retext = shortened(text), shortened(retext)
            is_shown = text != retext
            yield PropertyChange(name, text, retext) if is_shown else PropertyChange(name)
