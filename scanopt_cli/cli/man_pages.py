"""The pages of ``man scanopt``, made of the commands themselves: ``make man``.

A page for scanopt, and one for each command. The build of a wheel writes them too, by
``.ci/man_hook.py``. PyTensor is not imported.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import typer.main

from scanopt_cli.cli.app import app
from scanopt_cli.environment import CACHE, CACHE_LIMIT, JOBS, STRICT
from scanopt_cli.version import __version__

_ENVIRONMENT = {
    "NO_COLOR": "Set to anything, letters stay plain: no colour, and neither bold nor dim.",
    "COLUMNS": "How wide the output is, where a terminal does not say so.",
    CACHE: "`off` keeps nothing on disk for other processes, and reads nothing.",
    CACHE_LIMIT: "How many MiB may be kept on disk.",
    JOBS: "On how many graphs to work at a time, where --jobs does not say so.",
    STRICT: "Set to anything, an error of a pass ends `optimize`. --debug sets it.",
}
_FILES = {
    "pyproject.toml": "The table tool.scanopt.check holds the settings of `check`, and "
    "tool.scanopt.budget the limits of `diff`.",
}
_HOME = "https://github.com/scanopt/scanopt"


def man_pages(date: str) -> dict[str, str]:
    """Return the pages by the names of their files, with a date such as ``2026-11-28``."""
    group: Any = typer.main.get_command(app)
    root = group.context_class(group, info_name=group.name, **group.context_settings)
    pages = {"scanopt.1": "\n".join(_main_page(group, root, date)) + "\n"}
    for name, command in group.commands.items():
        context = command.context_class(command, info_name=name, parent=root)
        pages[f"scanopt-{name}.1"] = "\n".join(_command_page(command, context, date)) + "\n"
    return pages


def write_man_pages(directory: Path) -> list[Path]:
    """Write the pages into a directory; return their files."""
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))
    directory.mkdir(parents=True, exist_ok=True)
    files = []
    for name, page in man_pages(time.strftime("%Y-%m-%d", time.gmtime(seconds))).items():
        files.append(directory / name)
        files[-1].write_text(page, encoding="ascii")
    return files


def _main_page(group: Any, context: Any, date: str) -> Iterator[str]:
    yield from _head("scanopt", group.help.removesuffix("."), date)
    yield from (r"\fBscanopt\fR [OPTIONS] COMMAND [ARGS]...", ".SH DESCRIPTION")
    yield from _paragraphs(
        "scanopt loads a graph of PyTensor's from a file, runs passes on the loops in it, shows "
        "what changed and why, and tests that the values stayed the same. `scanopt capture -- "
        "python model.py` saves the graphs of a program; `scanopt explain TOPIC` says what a term "
        "means."
    )
    yield from _section("OPTIONS", _records(group, context, "option"))
    commands = [
        (f"scanopt-{name}(1)", _first(command.help)) for name, command in group.commands.items()
    ]
    yield from _section("COMMANDS", commands)
    yield ".SH EXIT STATUS"
    yield from _paragraphs(group.epilog.removeprefix("Exit codes: "))
    yield from _section("ENVIRONMENT", _ENVIRONMENT.items())
    yield from _section("FILES", _FILES.items())
    yield ".SH SEE ALSO"
    yield _text(_HOME)


def _command_page(command: Any, context: Any, date: str) -> Iterator[str]:
    name = context.info_name
    yield from _head(f"scanopt-{name}", _first(command.help).removesuffix("."), date)
    arguments = _records(command, context, "argument")
    usage = " ".join(["[OPTIONS]", *(metavar for metavar, _ in arguments)])
    yield from (rf"\fBscanopt {name}\fR {_text(usage)}", ".SH DESCRIPTION")
    yield from _paragraphs(command.help)
    if arguments:
        yield from _section("ARGUMENTS", arguments)
    yield from _section("OPTIONS", _records(command, context, "option"))
    yield from (".SH SEE ALSO", r"\fBscanopt\fR(1), which has the exit codes")


def _head(name: str, what: str, date: str) -> Iterator[str]:
    yield f'.TH {_text(name.upper())} 1 {date} "scanopt {__version__}" "scanopt"'
    yield ".ad l"
    yield from (".SH NAME", rf"{_text(name)} \- {_text(what)}", ".SH SYNOPSIS")


def _records(command: Any, context: Any, kind: str) -> list[tuple[str, str]]:
    """Return each parameter of a kind, as it is written, and what its help says."""
    found = (
        param.get_help_record(context)
        for param in command.get_params(context)
        if param.param_type_name == kind and not getattr(param, "hidden", False)
    )
    return [record for record in found if record is not None]


def _section(title: str, entries: Iterable[tuple[str, str]]) -> Iterator[str]:
    yield f".SH {title}"
    for name, text in entries:
        yield from (".TP", rf"\fB{_text(name)}\fR", _text(" ".join(text.split())))


def _paragraphs(text: str) -> Iterator[str]:
    for number, paragraph in enumerate(text.split("\n\n")):
        if number:
            yield ".PP"
        yield _text(" ".join(paragraph.split()))


def _first(text: str) -> str:
    """Return the first paragraph of a help, as one line."""
    return " ".join(text.partition("\n\n")[0].split())


def _text(text: str) -> str:
    """Return a text of one line as roff has it: names between backquotes bold, and ASCII alone."""
    text = text.replace(r"\[", "[").replace("\\", r"\e").replace("-", r"\-")
    text = re.sub(r"`([^`]*)`", r"\\fB\1\\fR", text)
    if text.startswith((".", "'")):
        text = rf"\&{text}"
    return "".join(char if char.isascii() else rf"\[u{ord(char):04X}]" for char in text)


if __name__ == "__main__":
    for file in write_man_pages(Path(sys.argv[1])):
        print(file)
