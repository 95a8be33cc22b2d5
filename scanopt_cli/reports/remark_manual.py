"""What the code of a remark means, and which passes leave such remarks."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from scanopt_cli import remarks
from scanopt_cli.pipeline.manual import manual
from scanopt_cli.pipeline.names import BY_NAME
from scanopt_cli.remarks import Code, Why
from scanopt_cli.reports.document import Block, Heading, Item, Paragraph, Span, Style
from scanopt_cli.reports.remark_text import HINTS, REASONS, TEXTS
from scanopt_cli.text import enumerated

# The fields of a text, as ``{count:length}`` and ``{slots!q}``.
_FIELD = re.compile(r"\{(\w+)[^}]*\}")
_GROUP = re.compile(r"^    # (.*)$|^    \w+ = \"([\w-]+)\"$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class RemarkManual:
    """What a code says.

    ``passes`` leave such remarks: none for the code of a reason, which any pass may give, nor for
    what is said of any pass. ``hint`` is what a user can do about it.
    """

    code: str
    text: str
    passes: tuple[str, ...]
    is_reason: bool
    hint: str | None


def remark_manual(code: str) -> RemarkManual:
    """Return the manual of the code of a remark, or of a reason."""
    if code in {*Code}:
        found = tuple(name for name in _groups()[code] if name in BY_NAME)
        return RemarkManual(code, _FIELD.sub("…", TEXTS[Code(code)]), found, False, None)
    why = Why(code)
    return RemarkManual(code, _FIELD.sub("…", REASONS[why]), (), True, HINTS.get(why))


def remark_report(found: RemarkManual) -> Iterator[Block]:
    """Yield what a code says, and the passes that leave it."""
    kind = "why a pass did not rewrite something" if found.is_reason else "a remark"
    yield Heading(found.code, kind if found.is_reason else f"{kind} of {_who(found)}")
    yield from (Paragraph(), Paragraph(found.text), Paragraph())
    if found.hint is not None:
        yield Paragraph(f"what to do: {found.hint}")
    for name in found.passes:
        yield Item([Span(name, Style.STRONG)], notes=[manual(name).summary])
    if found.passes:
        yield Paragraph("`scanopt passes NAME` prints a pass's manual.")


def _who(found: RemarkManual) -> str:
    if not found.passes:
        return "any pass, or of scanopt itself"
    return enumerated(found.passes)


@cache
def _groups() -> Mapping[str, tuple[str, ...]]:
    """Return for each code the passes that the comment above it names."""
    found: dict[str, tuple[str, ...]] = {}
    names: tuple[str, ...] = ()
    for comment, code in _GROUP.findall(inspect.getsource(remarks.Code)):
        if comment:
            names = tuple(comment.split(", "))
        else:
            found[code] = names
    return found
