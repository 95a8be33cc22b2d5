"""Changes of an Op that is not a loop: in the properties it declares, else in its state."""

from __future__ import annotations

from collections.abc import Iterator

from pytensor.graph.op import Op
from pytensor.tensor.elemwise import Elemwise

from scanopt_cli.diff.changes import Change, Note, Subject
from scanopt_cli.diff.labels import op_label, shortened
from scanopt_cli.equivalence.encoding import state
from scanopt_cli.facts import Fact

_ADDRESS = " at 0x"


def changed_properties(subject: Subject, before: Op, after: Op) -> list[Change]:
    """Return the differences between two Ops of ``subject`` whose digests differ; at least one."""
    label, relabel = op_label(before), op_label(after)
    of_whole = Change.of_property(subject, "op", label, relabel)
    if type(before) is not type(after):
        return [of_whole]
    different = list(_different(subject, before, after))
    if label != relabel and (len(different) != 1 or isinstance(before, Elemwise)):
        return [of_whole]
    return different or [without_text(subject)]


def without_text(subject: Subject) -> Change:
    """Return the change of a node whose Ops differ in a way that no text shows."""
    return Change.of_property(subject, "", None, None, Fact(Note.NO_TEXT))


def _different(subject: Subject, before: Op, after: Op) -> Iterator[Change]:
    others = dict(state(after))
    for name, value in state(before):
        other = others.get(name)
        if other is value:
            continue
        text, retext = repr(value), repr(other)
        if _ADDRESS in text and type(other) is type(value):
            # The texts hold addresses, not values.
            note = Fact(Note.ANOTHER_OBJECT, {"type": type(value).__name__})
            yield Change.of_property(subject, name, None, None, note)
        elif text != retext:
            text, retext = shortened(text), shortened(retext)
            shown = (text, retext) if text != retext else ()
            yield Change.of_property(subject, name, *shown)
