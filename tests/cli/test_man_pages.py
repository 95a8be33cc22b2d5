"""The man pages have every command and every option, and roff has nothing to say against them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main

from scanopt_cli.cli.app import app
from scanopt_cli.cli.man_pages import man_pages, write_man_pages

GROUP: Any = typer.main.get_command(app)
PAGES = man_pages("2026-11-28")


def plain(page: str) -> str:
    """A page as a person reads it, more or less: without fonts and escapes."""
    text = re.sub(r"\\f[BR]", "", page)
    text = re.sub(r"\\\[u([0-9A-F]{4})\]", lambda code: chr(int(code[1], 16)), text)
    return text.replace(r"\-", "-").replace(r"\&", "").replace(r"\e", "\\")


def test_a_page_for_each_command() -> None:
    assert set(PAGES) == {"scanopt.1", *(f"scanopt-{name}.1" for name in GROUP.commands)}
    for name in GROUP.commands:
        assert f"\nscanopt-{name}(1)\n" in plain(PAGES["scanopt.1"])


@pytest.mark.parametrize("name", GROUP.commands)
def test_every_option_and_argument(name: str) -> None:
    page = plain(PAGES[f"scanopt-{name}.1"])
    entries = [entry.partition("\n")[0] for entry in page.split("\n.TP\n")[1:]]
    command = GROUP.commands[name]
    assert f"\nscanopt {name} [OPTIONS]" in page
    assert " ".join(command.help.split("\n\n")[0].replace("`", "").split()) in page
    for param in command.params:
        for written in (*param.opts, *param.secondary_opts):
            if param.param_type_name == "argument":
                written = param.metavar
            where = [entry for entry in entries if written in re.split(r"[ ,/]+", entry)]
            assert where or written in entries, written
    assert any("--help" in entry and "-h" in entry for entry in entries)
    assert "<bool>" not in page


def test_the_page_of_scanopt() -> None:
    page = plain(PAGES["scanopt.1"])
    assert all(f"\n{option}\n" in page for option in ("--version", "--debug"))
    assert "0 clean, 1 a finding, 2 scanopt could not do its work" in page
    assert all(name in page for name in ("NO_COLOR", "SCANOPT_CACHE", "pyproject.toml"))


def test_dates_can_be_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    files = write_man_pages(tmp_path / "man")
    assert {file.name for file in files} == set(PAGES)
    assert "1970-01-02" in (tmp_path / "man" / "scanopt.1").read_text().splitlines()[0]


@pytest.mark.parametrize(
    "command",
    [
        ["groff", "-man", "-ww", "-z", "-Tutf8"],
        ["mandoc", "-T", "lint", "-W", "warning"],
        ["man", "-l", "--warnings"],
    ],
    ids=lambda command: command[0],
)
def test_roff_warns_of_nothing(command: list[str], tmp_path: Path) -> None:
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    if command[0] == "man" and sys.platform != "linux":
        pytest.skip("other systems have another man, which takes no file")
    for file in write_man_pages(tmp_path):
        done = subprocess.run([*command, str(file)], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert command[0] == "man" or done.stdout == ""
        if command[0] == "man":
            assert "SEE ALSO" in done.stdout


def test_pages_need_no_pytensor(tmp_path: Path) -> None:
    """A wheel is built where it is not installed."""
    code = (
        "import sys, pathlib; from scanopt_cli.cli.man_pages import write_man_pages;"
        f"write_man_pages(pathlib.Path({str(tmp_path)!r}));"
        "sys.exit('pytensor' in sys.modules or 'numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
