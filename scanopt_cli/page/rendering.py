"""Writes a page as one file of HTML that needs nothing else, neither a server nor a network.

What comes from a graph reaches the page in two ways only. Texts go through the escaping of Jinja2
and of `scanopt_cli.reports.as_html`; pictures are JSON, compressed and written in base64, which the
script reads as data and shows as text, never as HTML. The content security policy of the page lets
run the script that is ours, by its digest, and the layout that it starts in a worker, and nothing
else: no image, frame, form or connection of any kind.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from scanopt_cli.explain.topics import topic
from scanopt_cli.page.page import Page, Spent, Tone
from scanopt_cli.page.picture import Picture, Port, Remarked
from scanopt_cli.remarks import RemarkKind
from scanopt_cli.reports import as_html
from scanopt_cli.reports.optimize_report import REMARK_SIGNS
from scanopt_cli.text import printable, time_text
from scanopt_cli.version import __version__

SCRIPTS = (
    *("names", "signs", "levels", "expressions", "layout", "boxes", "canvas", "legend"),
    *("details", "search", "runs", "unfolding", "app"),
)
"""The parts of the script, in the order in which they are joined: each uses those before it."""
TONES = {Tone.GOOD: "✓ good", Tone.NEUTRAL: "i", Tone.WARNING: "! warning", Tone.BAD: "✗ bad"}
"""What is written beside a verdict, for who does not see its colour."""
_WORDS = {
    RemarkKind.PASSED: "done",
    RemarkKind.MISSED: "not done",
    RemarkKind.ANALYSIS: "noticed",
    RemarkKind.WARNING: "warning",
}
SIGNS = {
    **{kind.value: {"sign": s.text, "word": _WORDS[kind]} for kind, s in REMARK_SIGNS.items()},
    "error": {"sign": "✗", "word": "error"},
}
"""The sign of each kind of remark, and its meaning."""
_SHARE_WIDTH = 1_000
_ELK = "elk-worker.min.js"


def render(page: Page) -> str:
    """Return a page as HTML."""
    script = "\n".join(_asset(f"{name}.js") for name in SCRIPTS)
    style = _asset("page.css")
    template = _environment().from_string(_asset("page.html.j2"))
    drawn = [
        {"title": d.title, "picture": compact(d.picture), "sideBySide": d.side_by_side}
        for d in page.drawn
    ]
    kinds = {port.kind for d in page.drawn for port in _ports(d.picture)}
    return template.render(
        page=page,
        tone_word=TONES[page.tone],
        time_text=time_text,
        signs=SIGNS,
        in_short=_in_short,
        printable=printable,
        shares=_shares(page.times),
        share_width=_SHARE_WIDTH,
        drawn=drawn,
        blocks=lambda blocks: Markup(as_html.render(blocks, with_classes=True)),
        script=Markup(f"\n{script}"),
        style=Markup(f"\n{style}"),
        script_digest=_digest(f"\n{script}"),
        style_digest=_digest(f"\n{style}"),
        data=_packed(
            json.dumps({"drawn": drawn, "words": _words(kinds), "remarks": SIGNS}).encode()
        ),
        layout=_layout() if drawn else "",
        version=__version__,
    )


def _shares(times: Sequence[Spent]) -> list[dict[str, float]]:
    """Return where each time begins in a bar of all of them, and how wide it is there."""
    total = sum(one.seconds for one in times) or 1.0
    found, start = [], 0.0
    for one in times:
        width = _SHARE_WIDTH * one.seconds / total
        found.append({"start": round(start, 1), "width": round(width, 1)})
        start += width
    return found


def _in_short(remarks: Sequence[Remarked]) -> str:
    """Return how many remarks there are of each kind."""
    counts = Counter(kind for kind, _, _ in remarks)
    return ", ".join(f"{counts[kind]} {SIGNS[kind]['word']}" for kind in SIGNS if counts[kind])


def compact(value: Any) -> Any:
    """Return plain data as JSON has it; fields that have their default value are left out."""
    if is_dataclass(value) and not isinstance(value, type):
        return {
            item.name: compact(getattr(value, item.name))
            for item in fields(value)
            if not _is_default(item, getattr(value, item.name))
        }
    if isinstance(value, Mapping):
        return {key: compact(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [compact(item) for item in value]
    return value


def _is_default(item: Field[Any], value: Any) -> bool:
    return item.default is not MISSING and bool(value == item.default)


def _ports(picture: Picture) -> Iterator[Port]:
    for level in picture.levels.values():
        for box in level.boxes:
            yield from box.ports


def _words(kinds: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return what `scanopt explain` says of kinds of slots, as far as it does."""
    found = {kind: topic(kind) for kind in sorted(kinds)}
    return {
        kind: {"summary": each.summary, "text": each.text}
        for kind, each in found.items()
        if each is not None
    }


@cache
def _environment() -> Environment:
    made = Environment(autoescape=True, undefined=StrictUndefined)
    made.trim_blocks = made.lstrip_blocks = True
    return made


@cache
def _asset(name: str) -> str:
    return files("scanopt_cli.page").joinpath("assets", name).read_text("utf-8")


@cache
def _layout() -> str:
    """Return the library that lays out graphs, compressed."""
    packed = files("scanopt_cli.page").joinpath("assets", f"{_ELK}.gz").read_bytes()
    return base64.b64encode(packed).decode()


def _packed(data: bytes) -> str:
    return base64.b64encode(gzip.compress(data, mtime=0)).decode()


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
