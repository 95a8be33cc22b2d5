"""What changed about an Op that is no loop: the properties that it declares, else its state."""

from __future__ import annotations

from collections.abc import Iterator

from pytensor.graph.op import Op
from pytensor.tensor.elemwise import Elemwise

from scanopt_cli.diff.labels import op_label, shortened
from scanopt_cli.equivalence.encoding import state

type Told = tuple[str, str | None, str | None]
"""A property, and what it was and is; ``None`` where only that it differs can be told."""

_ADDRESS = " at 0x"
UNTOLD: Told = ("differs in a way that has no short text", None, None)


def changed_properties(before: Op, after: Op) -> list[Told]:
    """Return what is different about two Ops of different digests; at least one entry."""
    label, relabel = op_label(before), op_label(after)
    if type(before) is not type(after):
        return [("op", label, relabel)]
    told = list(_different(before, after))
    if label != relabel and (len(told) != 1 or isinstance(before, Elemwise)):
        return [("op", label, relabel)]
    return told or [UNTOLD]


def _different(before: Op, after: Op) -> Iterator[Told]:
    others = dict(state(after))
    for name, value in state(before):
        other = others.get(name)
        if other is value:
            continue
        text, retext = repr(value), repr(other)
        if _ADDRESS in text and type(other) is type(value):
            # It says where the object is, not what it is.
            yield f"{name} is another {type(value).__name__}", None, None
        elif text != retext:
            text, retext = shortened(text), shortened(retext)
            is_told = text != retext
            yield (name, text, retext) if is_told else (f"{name} differs", None, None)
