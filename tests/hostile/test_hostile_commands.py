"""Each hostile file through every command: one line and exit 2, no trace, no crash, no hang."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from write_files import heavy

from scanopt_cli.cli.app import run
from scanopt_cli.serialization.loading import load
from scanopt_cli.serialization.saving import save
from support import tiers
from support.graph_building import graph_of, power
from support.hostile.files import FILES
from support.hostile.graphs import HEAVY
from support.hostile.running import HOSTILE
from support.hostile.sharing import SHARING, TRACED
from support.hostile.sizes import SIZES

LIMIT = 20
"""Seconds of processor time that no command may take."""

COMMANDS: dict[str, list[str]] = {
    "inspect": ["inspect", "FILE"],
    "hash": ["hash", "FILE", "--inner"],
    "diff": ["diff", "FILE", "HONEST"],
    "diff, second": ["diff", "HONEST", "FILE", "--stat"],
    "optimize": ["optimize", "FILE", "-p", "grad", "--lines", "5", "-o", "TARGET"],
    "optimize, verified": ["optimize", "FILE", "--verify", "-o", "TARGET"],
    "verify": ["verify", "FILE", "HONEST"],
    "verify, second": ["verify", "HONEST", "FILE"],
    "grad": ["grad", "FILE", "--order", "2", "-o", "TARGET"],
    "check": ["check", "FILE", "--fix", "-o", "TARGET"],
    "lock": ["lock", "FILE", "-o", "LOCK"],
    "python": ["python", "FILE", "-o", "SCRIPT"],
    "audit": ["audit", "FILE"],
    "convert": ["convert", "FILE", "TARGET"],
    "view": ["view", "FILE", "-p", "default", "--code", "-o", "PAGE"],
    "check, as a page": ["check", "FILE", "--html", "PAGE"],
}
# What evaluates a graph does so in a child, for as long as it is given.
UNEVALUATED = {
    **{name: words for name, words in COMMANDS.items() if "verif" not in name},
    "grad": ["grad", "FILE", "--no-check", "--stage", "scanopt", "-o", "TARGET"],
}
REFUSED = {**FILES, **SIZES, **SHARING}
NAMES = (*HOSTILE, *REFUSED)
# These take a second or more.
SLOW = {
    "a long chain",
    "as many steps as the least of many",
    "calls one by one",
    "constants of one sum",
    "deep lists",
    "deep tuples",
    "entries one by one",
    "formulas that hold formulas twice",
    "lists of one list",
    "many Ops of one body",
    "many graphs of the same nodes",
    "many outputs",
    "nodes in a row",
    "one key set again",
    "one trace for all",
    "opcodes without end",
    "options of many Ops",
    "states that change places",
}


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("honest") / "honest.pkl"
    save(graph_of(power()[1][-1]), path)
    return path


@contextmanager
def no_longer_than(seconds: int) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TimeoutError(f"took longer than {seconds} s")

    # Of the time in Python code; what a busy machine does meanwhile does not count.
    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def filled(words: list[str], file: Path, honest: Path) -> list[str]:
    places = {"FILE": file, "HONEST": honest, "TARGET": file.parent / "target.pkl"}
    places["SCRIPT"], places["PAGE"] = file.parent / "script.py", file.parent / "page.html"
    places["LOCK"] = file.parent / "scanopt.lock"
    return [str(places.get(word, word)) for word in words]


def tried(commands: Collection[str]) -> Collection[str]:
    """All commands load files alike: each file is tried by one, and by all in the deep tier."""
    return commands if tiers.IS_DEEP else ("optimize",)


def by_tier(names: Iterable[str]) -> list[Any]:
    names = list(names)
    slow = [name for name in names if name in SLOW]
    return [*(name for name in names if name not in SLOW), *tiers.deep(*slow)]


def test_there_are_many() -> None:
    assert len(NAMES) + len(HEAVY) >= 180


@pytest.mark.tiered(every=9)
@pytest.mark.parametrize(
    "name",
    [*(name for name in NAMES if name not in SLOW), *tiers.deep(*sorted(SLOW.difference(HEAVY)))],
)
def test_every_command_refuses_it(
    name: str, honest: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, marker = tmp_path / "file.pkl", tmp_path / "marker"
    file.write_bytes(refused_data(name, marker))
    # Large files take long, and all commands read them alike.
    is_large = name in SIZES | SHARING
    commands = ("inspect", "audit")[: 1 + tiers.IS_DEEP] if is_large else tried(COMMANDS)
    for command in commands:
        with no_longer_than(LIMIT):
            code = run(filled(COMMANDS[command], file, honest))
        shown = capsys.readouterr()
        # The audit of a file that can be read tells what is wrong with it.
        is_told = command == "audit" and code == 1
        assert is_told or code == 2, command
        assert is_told or (shown.out == "" and shown.err.count("\n") == 1), (command, shown)
        assert "a bug in scanopt" not in shown.err
        assert "Traceback" not in shown.err
    assert not marker.exists()
    assert not (tmp_path / "target.pkl").exists()
    assert not (tmp_path / "scanopt.lock").exists()


@pytest.mark.parametrize("name", TRACED)
def test_traces_that_nobody_reads_are_left_out(name: str, tmp_path: Path) -> None:
    file = tmp_path / "file.pkl"
    file.write_bytes(TRACED[name]())
    with no_longer_than(LIMIT):
        graph = load(file)
    for output in graph.outputs:
        stacks = getattr(output.tag, "trace", [])
        assert sum(map(len, stacks)) <= 1_000


def refused_data(name: str, marker: Path) -> bytes:
    return HOSTILE[name](marker) if name in HOSTILE else REFUSED[name]()


@pytest.mark.tiered(every=4)
@pytest.mark.parametrize("name", by_tier(HEAVY))
def test_no_command_hangs_on_it(
    name: str, honest: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file.pkl"
    file.write_bytes(heavy(name))
    for command in tried(UNEVALUATED):
        words = UNEVALUATED[command]
        with no_longer_than(LIMIT):
            code = run(filled(words, file, honest))
        shown = capsys.readouterr()
        assert code in (0, 1, 2), command
        assert code != 2 or shown.err.splitlines()[-1].startswith("scanopt: "), (command, shown)
        assert "a bug in scanopt" not in shown.err, command
        assert "Traceback" not in shown.err


@pytest.mark.deep
@pytest.mark.parametrize(
    ("name", "command"),
    [
        *((name, command) for name in HEAVY for command in ("inspect", "optimize", "grad")),
        *((name, "audit") for name in (*SIZES, *SHARING)),
    ],
)
@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc for the peak")
def test_memory_in_a_process_of_its_own(
    name: str, command: str, honest: Path, tmp_path: Path
) -> None:
    """As a user would run it: no more than a gigabyte, an exit code of ours, and no signal."""
    file = tmp_path / "file.pkl"
    file.write_bytes(heavy(name) if name in HEAVY else refused_data(name, tmp_path / "marker"))
    words = filled(UNEVALUATED[command], file, honest)
    peak = tmp_path / "status"
    # Not by getrusage, which begins with what the process had that started this one.
    code = (
        "import sys, pathlib; from scanopt_cli.cli.app import run\n"
        f"code = run({words!r})\n"
        f"status = pathlib.Path('/proc/self/status').read_text()\n"
        f"pathlib.Path({str(peak)!r}).write_text(status)\n"
        "sys.exit(code)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "COLUMNS": "80"},
        capture_output=True,
        timeout=2 * LIMIT,
        check=False,
    )
    assert done.returncode in (0, 1, 2), done.stderr
    (kilobytes,) = re.findall(r"VmHWM:\s*(\d+) kB", peak.read_text())
    assert int(kilobytes) < 1 << 20
