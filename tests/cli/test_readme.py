"""The README's commands do what it shows, pasted one after the other."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import chdir
from importlib import import_module
from pathlib import Path

import pytest
from pytensor.configdefaults import config

from build import SAMPLES, write
from support.command_line import scanopt

ROOT = Path(__file__).parents[2]
SECONDS = re.compile(r"\(in \d+\.\d s\)")


def commands() -> Iterator[tuple[str, str]]:
    """Yield each command of the README after a prompt, and what it shows below."""
    lines = (ROOT / "README.md").read_text().splitlines()
    for place, line in enumerate(lines):
        if line.startswith("    $ scanopt "):
            end = place + 1
            while end < len(lines) and (not lines[end] or lines[end].startswith("    ")):
                end += 1
            yield line.removeprefix("    $ scanopt "), "\n".join(lines[place + 1 : end])


def words(text: str) -> list[str]:
    """The text without its line ends, which depend on the width, and without seconds."""
    return SECONDS.sub("", " ".join(re.sub(r"[│└├─]", " ", text).split())).split()


@pytest.mark.deep
def test_the_tour(tmp_path: Path) -> None:
    # As `make samples` does, which keeps the lines that wrote the loops.
    with chdir(ROOT), config.change_flags(traceback__limit=8):
        for module in SAMPLES:
            write(import_module(module).build(), tmp_path)
    # As for a user: the tests have PyTensor compile otherwise, which the counts would show.
    flags = f"base_compiledir={tmp_path / 'compiled'}"
    found = list(commands())
    assert len(found) >= 7
    for command, shown in found:
        done = scanopt(*shlex.split(command), cwd=tmp_path, COLUMNS="100", PYTENSOR_FLAGS=flags)
        assert done.code == (1 if command.startswith(("diff", "check")) else 0), done.err
        # Not what PyTensor warns of, such as a BLAS that it does not find.
        remarks = re.search(r"^\S+: remarks\n(^ .*\n|^[\w-]+\n)*", done.err, re.MULTILINE)
        told = f"{done.out} {remarks[0] if remarks else ''}"
        assert words(told) == words(shown), command
