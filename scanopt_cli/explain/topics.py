"""The topics of ``scanopt explain``, which the files in ``topics`` hold as Markdown.

A file begins with its title, ``# mit_mot``. Its first sentence is what a list says of the topic. A
line ``Also called: …`` has other names by which it is found, and a last line ``See also: …`` the
topics next to it. What is shown of a command, as ``$ scanopt inspect seed.pkl`` and below it what
it prints, is run by the tests.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

PARTS: Mapping[str, tuple[str, ...]] = {
    "loops": (
        "scan",
        "step",
        "length",
        "carry",
        "invariant",
        "on_numbers",
        "traced_loop",
        "node",
        "draw",
        "line",
        "op_from_graph",
    ),
    "slots of a Scan": (
        "slot",
        "sequence",
        "state",
        "tap",
        "sit_sot",
        "mit_sot",
        "mit_mot",
        "nit_sot",
        "untraced_state",
        "shared_state",
        "non_seq",
        "loop_slots",
    ),
    "memory": ("buffer", "trace", "trimmed_scan"),
    "derivatives": ("pullback", "pushforward", "gradient_strategies", "pedigree"),
    "rewrites": ("pass", "preset", "remark", "guard", "right_once_compiled"),
    "checks": ("rule", "finding", "budget", "lock_file", "verify", "sameness"),
    "programs": ("enabled", "report", "capture", "file", "mode"),
}
"""The files, without their endings, in the order in which they are listed and may be read."""

_ALSO = re.compile(r"^Also called: (.*?)\.$", re.MULTILINE | re.DOTALL)
_SEE = re.compile(r"^See also: (.*?)\.$", re.MULTILINE | re.DOTALL)
_BLANKS = re.compile(r"[\s_-]+")


@dataclass(frozen=True, slots=True)
class Topic:
    """What a term means.

    Attributes
    ----------
    name
        The term.
    part
        What it belongs to: loops, memory, and so on.
    summary
        The first sentence of the text, without the stop at its end.
    text
        Markdown, without the title.
    also
        Other names of it.
    see
        Topics next to it.
    """

    name: str
    part: str
    summary: str
    text: str
    also: tuple[str, ...]
    see: tuple[str, ...]

    @property
    def word(self) -> str:
        """The name as one word, as a shell completes it."""
        return self.name.replace(" ", "-")


@cache
def topics() -> tuple[Topic, ...]:
    """Return all topics, part by part."""
    return tuple(_read(stem, part) for part, stems in PARTS.items() for stem in stems)


def topic(words: str) -> Topic | None:
    """Return the topic of a name, in any case, with blanks, ``-`` or ``_``, one or several."""
    return _by_key().get(_key(words))


def names() -> Iterator[str]:
    """Yield all names by which a topic is found."""
    for each in topics():
        yield from (each.name, *each.also)


@cache
def _by_key() -> Mapping[str, Topic]:
    found = {_key(name): each for each in topics() for name in each.also}
    return found | {_key(each.name): each for each in topics()}


def _key(words: str) -> str:
    return " ".join(map(_singular, _BLANKS.sub(" ", words.lower()).split()))


def _singular(word: str) -> str:
    """Return a word without the ending of a plural."""
    if word.endswith("ies"):
        return f"{word[:-3]}y"
    if word.endswith(("sses", "ches")):
        return word[:-2]
    return word if word.endswith(("ss", "us", "is")) else word.removesuffix("s")


def _read(stem: str, part: str) -> Topic:
    markdown = files(__package__).joinpath("topics", f"{stem}.md").read_text(encoding="utf-8")
    title, _, text = markdown.partition("\n")
    text = text.strip()
    summary = " ".join(re.split(r"(?<=[.:])\s", text, maxsplit=1)[0].split()).rstrip(".:")
    return Topic(
        name=title.removeprefix("# "),
        part=part,
        summary=summary,
        text=text,
        also=_listed(_ALSO, text),
        see=_listed(_SEE, text),
    )


def _listed(pattern: re.Pattern[str], text: str) -> tuple[str, ...]:
    found = pattern.search(text)
    if found is None:
        return ()
    return tuple(" ".join(name.strip("` \n").split()) for name in found[1].split(","))
