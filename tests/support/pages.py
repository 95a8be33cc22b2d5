"""The pages of the documentation as tests: what stands on a page is run, and its output compared.

A page is run from top to bottom in an empty folder, which has the sample graphs in
``sample_graphs``, as a reader would who copies one block after the other:

- ``console``: each line after ``$`` is a command. What is shown below is its output, word for word;
  if nothing is shown, it is not compared. A command that exits with 1 says so by a directive.
- ``python``: is executed, in one interpreter for the page. If its first line is a comment with the
  name of a file, it is written there instead; so are ``toml`` and ``yaml``.
- ``output``: what the Python block before it prints.
- ``toml``, ``yaml``: have to be well-formed; the scanopt commands of a workflow's steps are run.
- ``text``: is no code.

Directives are comments above a block, which no reader sees: ``<!-- test: exit=1 -->``. They are

- ``exit=N``: the exit code of the block's last command;
- ``figures``: numbers are measured, so they and their units may be others, and so may the parts of
  a compilation that took any time;
- ``stderr``: what is shown comes from stderr as well;
- ``needs=NAME``: the block is for the tests with the marker of this name, such as ``pymc``;
- ``not-run REASON``: the block is not run, and why;
- ``run``, and commands on the lines below: they are run, and the page does not show them;
- ``page ...``: ``needs`` and ``deep`` for all blocks of the page; ``own-cache``: the page has
  its own cache of compiled graphs, which is empty.

A line of an output that is ``…`` alone stands for any lines.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SITE = ROOT / "docs"
LANGUAGES = {"console", "python", "output", "toml", "yaml", "text", "run"}
TIMEOUT = 900

_NOT_KEPT = ("PYTENSOR_", "SCANOPT_", "GITHUB_", "CI", "BUILD_NUMBER")
"""Beginnings of variables that change what is printed; pytest cuts no line where CI is set."""

_DIRECTIVE = re.compile(r"<!-- test: (.*?)-->", re.DOTALL)
_FENCE = re.compile(r"( *)(```+)(\S*)(?: .*)?$")
_FILE_NAME = re.compile(r"# (\S+\.(?:py|toml|ya?ml))$")
_SECONDS = re.compile(r"\(in \d+\.\d s\)")
_PARTS = re.compile(r"\b(?:passes|PyTensor|linking|code|Numba|LLVM|reading) 0,?")
"""What `report` says of the seconds of a compilation, but for what took next to none."""
_UNITS = re.compile(r"\b0 (?:s|ms|µs|ns|bytes|kB|MB|GB)\b")
_FIGURE = re.compile(r"\d[\d.,]*(?:e[+-]?\d+)?")


@dataclass(frozen=True, slots=True)
class Block:
    """A block of a page, with the line where it begins and the words of its directive."""

    line: int
    language: str
    text: str
    words: tuple[str, ...] = ()

    def has(self, word: str) -> bool:
        """Say whether the directive has a word."""
        return word in self.words

    def value(self, name: str) -> str | None:
        """Return what the directive gives a name, if it does."""
        return next((w.partition("=")[2] for w in self.words if w.startswith(f"{name}=")), None)

    @property
    def file(self) -> str | None:
        """The file that the block is to be written to, which its first line names."""
        found = _FILE_NAME.match(self.text.partition("\n")[0])
        return found and found[1]


@dataclass(frozen=True)
class Page:
    """A page: its blocks, and the words of the directive for all of it."""

    path: Path
    blocks: tuple[Block, ...]
    words: tuple[str, ...]

    @property
    def name(self) -> str:
        """The path from the root of the project, for people."""
        return self.path.relative_to(ROOT).as_posix()

    def needs_of(self, block: Block) -> str | None:
        """Return the marker of the tests that run a block, None if all do."""
        own = Block(0, "", "", self.words).value("needs")
        return block.value("needs") or own

    @property
    def needs(self) -> list[str | None]:
        """The markers of the tests that have anything to run here."""
        run = [b for b in self.blocks if b.language != "text" and not b.has("not-run")]
        found = {self.needs_of(block) for block in run}
        return sorted(found, key=str)


def read_page(path: Path) -> Page:
    """Read a page and find its blocks."""
    blocks: list[Block] = []
    page_words: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    lines = path.read_text(encoding="utf-8").splitlines()
    place = 0
    while place < len(lines):
        line = lines[place]
        started = place + 1
        if line.startswith("<!-- test: "):
            text = line
            while "-->" not in text:
                place += 1
                text += "\n" + lines[place]
            found = _DIRECTIVE.fullmatch(text.strip())
            assert found, f"{path}:{started}: not a directive"
            first, _, rest = found[1].partition("\n")
            if first.split()[:1] == ["page"]:
                page_words = tuple(first.split()[1:])
            elif first.split()[:1] == ["run"]:
                blocks.append(Block(started, "run", rest, tuple(first.split()[1:])))
            else:
                words = tuple(first.split())
        elif fence := _FENCE.match(line):
            indent, ticks, language = fence.groups()
            body = []
            place += 1
            while lines[place].strip() != ticks:
                body.append(lines[place].removeprefix(indent))
                place += 1
            if not language.startswith("{"):
                blocks.append(Block(started, language, "\n".join(body), words))
            words = ()
        place += 1
    return Page(path, tuple(blocks), page_words)


@dataclass
class Reader:
    """Somebody who types what a page shows, in a folder of their own."""

    folder: Path
    page: Page
    has_own_cache: bool = False
    _printed: str = ""
    _interpreter: subprocess.Popen[str] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Make the commands ``scanopt`` and ``python``, and note where the reader is."""
        self._here = self.folder
        self._bin = self.folder.parent / f"{self.folder.name}-bin"
        self._bin.mkdir()
        for name, module in {
            "scanopt": "-m scanopt_cli",
            "python": "",
            "pytest": "-m pytest",
        }.items():
            command = self._bin / name
            command.write_text(f'#!/bin/sh\nexec "{sys.executable}" {module} "$@"\n')
            command.chmod(0o755)

    def environment(self) -> dict[str, str]:
        """Return the environment of a user, but for the width and where compiled code is kept."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(_NOT_KEPT)}
        cache = self._bin / "cache"
        if not self.has_own_cache:
            kept["SCANOPT_CACHE"] = "off"  # graphs are rewritten by the passes as they are now
            versions = "-".join(version(package) for package in ("pytensor", "numba", "numpy"))
            cache = ROOT / ".pytest_cache" / f"pages-{versions}"
        python_path = os.pathsep.join([str(ROOT), str(ROOT / "sample_graphs")])
        return {
            **kept,
            "PATH": f"{self._bin}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": python_path,
            "PYTHONIOENCODING": "utf-8",
            "COLUMNS": "100",
            "PYTENSOR_FLAGS": f"base_compiledir={cache}",
        }

    def read(self, block: Block) -> None:
        """Do what a block says, and fail if it does something else."""
        place = f"{self.page.name}:{block.line}"
        assert block.language in LANGUAGES, f"{place}: blocks are one of {sorted(LANGUAGES)}"
        if block.language in ("text", "output"):
            if block.language == "output":
                self._compare(block, block.text, self._printed, place)
        elif block.has("not-run"):
            assert len(block.words) > 3, f"{place}: why is it not run?"
        elif block.file is not None:
            target = self._here / block.file
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(f"{block.text}\n", encoding="utf-8")
        elif block.language == "python":
            self._printed = self._execute(block.text, place)
        elif block.language == "run":
            self._run(block.text, place, 0)
        elif block.language == "console":
            self._type(block, place)
        if block.language == "toml":
            tomllib.loads(block.text)
        if block.language == "yaml":
            self._follow(block, place)

    def close(self) -> None:
        """End the interpreter."""
        if self._interpreter is not None:
            self._interpreter.kill()
            self._interpreter.communicate()

    def _type(self, block: Block, place: str) -> None:
        found = list(commands(block.text))
        assert found, f"{place}: a command begins with `$ `"
        for number, (command, shown) in enumerate(found, 1):
            code = int(block.value("exit") or 0) if number == len(found) else 0
            out, err = self._run(command, f"{place}: {command}", code)
            if shown.strip():
                told = f"{out}\n{err}" if block.has("stderr") else out
                self._compare(block, shown, told, f"{place}: {command}")

    def _run(self, command: str, place: str, code: int) -> tuple[str, str]:
        where = self._bin / "here"
        done = subprocess.run(
            ["bash", "-c", f"trap 'pwd > \"{where}\"' EXIT\n{command}"],
            cwd=self._here,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            timeout=TIMEOUT,
            check=False,
        )
        assert done.returncode == code, f"{place}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        self._here = Path(where.read_text().rstrip("\n"))
        return done.stdout, done.stderr

    def _execute(self, code: str, place: str) -> str:
        if self._interpreter is None:
            self._interpreter = subprocess.Popen(
                [sys.executable, str(Path(__file__).parent / "page_interpreter.py")],
                cwd=self._here,
                env=self.environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        stdin, stdout = self._interpreter.stdin, self._interpreter.stdout
        assert stdin is not None
        assert stdout is not None
        print(json.dumps({"code": code, "cwd": str(self._here)}), file=stdin, flush=True)
        answer: dict[str, Any] = json.loads(stdout.readline())
        assert answer["error"] is None, f"{place}:\n{answer['error']}"
        return str(answer["printed"])

    def _follow(self, block: Block, place: str) -> None:
        """Run the steps of a workflow that are commands of scanopt or git."""
        import yaml

        for step in _steps(yaml.safe_load(block.text)):
            if step.startswith(("scanopt ", "git ", "pytest ", "rm ")):
                self._run(step, f"{place}: {step}", int(block.value("exit") or 0))

    def _compare(self, block: Block, shown: str, told: str, place: str) -> None:
        pattern = (
            re.escape("\0")
            .join(
                re.escape(" ".join(words(part, figures=block.has("figures"))))
                for part in re.split(r"^ *…$", shown, flags=re.MULTILINE)
            )
            .replace(re.escape("\0"), ".*")
        )
        plain = " ".join(words(told, figures=block.has("figures")))
        assert re.fullmatch(pattern.replace(r"\ .*\ ", r" ?.* ?"), plain), (
            f"{place}: shown\n{shown}\n\nprinted\n{told}"
        )


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Yield each command after a prompt, and what is shown below."""
    lines = text.splitlines()
    place = 0
    while place < len(lines):
        if not lines[place].startswith("$ "):
            place += 1
            continue
        command = lines[place].removeprefix("$ ")
        while command.endswith("\\"):
            place += 1
            command += f"\n{lines[place]}"
        end = place + 1
        while end < len(lines) and not lines[end].startswith("$ "):
            end += 1
        yield command, "\n".join(lines[place + 1 : end])
        place = end


def words(text: str, *, figures: bool = False) -> list[str]:
    """The text without its line ends, which depend on the width, and without seconds."""
    found = _SECONDS.sub("", re.sub(r"[│└├─]", " ", text)).split()
    if figures:
        masked = " ".join(_FIGURE.sub("0", word) for word in found)
        found = _UNITS.sub("0 units", _PARTS.sub("", masked)).split()
    return found


def _steps(found: Any) -> Iterator[str]:
    if isinstance(found, dict):
        if isinstance(found.get("run"), str):
            yield found["run"]
        for value in found.values():
            yield from _steps(value)
    elif isinstance(found, list):
        for value in found:
            yield from _steps(value)


def pages() -> list[Page]:
    """Return the README and all pages of the site, but for what was generated."""
    generated = {SITE / "rules.md", SITE / "changes.md"}
    tables = SITE / "figures" / "tables"
    found = [
        p for p in sorted(SITE.rglob("*.md")) if p not in generated and tables not in p.parents
    ]
    return [read_page(path) for path in (ROOT / "README.md", *found)]
