"""Commands on many graphs: the same by workers as without, streamed, and stopped by ctrl-C."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import scanopt_cli as so
from support.command_line import Outcome, process, scanopt
from support.tiers import deep

NAMES = ("clean", "wasteful", "power", "grad")


@pytest.fixture
def many(files: Path, tmp_path: Path) -> Path:
    """A folder with graphs, and a file among them that is none."""
    folder = tmp_path / "graphs"
    folder.mkdir()
    for name in NAMES:
        shutil.copy(files / f"{name}.pkl", folder)
    (folder / "bad.pkl").write_bytes(b"no pickle")
    return folder


COMMANDS = {
    "check": ["check"],
    "check, concise": ["check", "--format", "concise", "-v"],
    "check, github": ["check", "--format", "github"],
    "check, sarif": ["check", "--format", "sarif"],
    "check, json": ["check", "--format", "json"],
    "check, jsonl": ["check", "--format", "jsonl"],
    "check, statistics": ["check", "--statistics"],
    "check, mended": ["check", "--fix", "-o", "OUT", "--diff"],
    "check, a page": ["check", "--html", "OUT/page.html"],
    "optimize": ["optimize", "--diff", "structural", "--print-changed", "--check", "-o", "OUT"],
    "optimize, json": ["optimize", "--format", "json", "--html", "OUT/page.html"],
    "optimize, markdown": ["optimize", "--format", "markdown", "--stat"],
    "hash": ["hash", "--inner"],
    "hash, json": ["hash", "--format", "json", "--names"],
    "view": ["view", "-o", "OUT/page.html", "-p", "default"],
}
QUICK = {"check, jsonl", "optimize"}


@pytest.mark.parametrize(
    "name",
    [pytest.param(each, marks=() if each in QUICK else pytest.mark.deep) for each in COMMANDS],
)
def test_workers_print_and_write_the_same(name: str, many: Path, tmp_path: Path) -> None:
    done, written = [], []
    for jobs in ("0", "2"):
        target = tmp_path / "out"
        target.mkdir()
        words = [word.replace("OUT", str(target)) for word in COMMANDS[name]]
        words += ["--jobs", jobs]
        words[1:1] = [str(many)]
        outcome = scanopt(*words)
        done.append(_without_times(outcome, jobs))
        written.append({path.name: _plain(path, jobs) for path in target.iterdir()})
        shutil.rmtree(target)
    assert done[0] == done[1]
    assert done[0].code == 2
    assert written[0] == written[1]
    assert written[0] or "OUT" not in " ".join(COMMANDS[name])


@pytest.mark.parametrize("jobs", ["0", "2"])
def test_gates_say_the_same_by_workers(
    jobs: str, many: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (many / "bad.pkl").unlink()
    commit = ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "graphs"]
    for words in (["init", "-q", "-b", "main", "."], ["add", "."], commit):
        subprocess.run(["git", *words], check=True, capture_output=True)
    assert scanopt("lock", "graphs", "--jobs", jobs).code == 0
    assert set(json.loads(Path("scanopt.lock").read_text())["graphs"]) == {
        f"graphs/{name}.pkl" for name in NAMES
    }
    shutil.copy(many / "grad.pkl", many / "clean.pkl")
    shutil.copy(many / "wasteful.pkl", many / "power.pkl")
    (many / "bad.pkl").write_bytes(b"no pickle")
    (many / "wasteful.pkl").unlink()

    compared = scanopt("status", "--format", "json", "--jobs", jobs)
    assert compared.code == 2
    states = [each.get("state", "error") for each in json.loads(compared.out)["graphs"]]
    assert sorted(states) == ["changed", "changed", "error", "missing", "unchanged"]
    told = scanopt("diff", "--against", "main", "graphs", "--format", "json", "--jobs", jobs)
    assert told.code == 1
    fates = {each["source"]: each["fate"] for each in json.loads(told.out)["graphs"]}
    assert list(fates) == sorted(fates)
    assert sorted(fates.values()) == ["differs", "differs", "gone", "new", "same"]


def _plain(path: Path, jobs: str) -> object:
    if path.suffix == ".html":  # tells the command and, by `optimize`, times
        return path.read_bytes().count(b"</section>")
    return so.digest(so.load(path)) if path.suffix == ".pkl" else path.read_bytes()


def _without_times(outcome: Outcome, jobs: str) -> Outcome:
    if '"command": "optimize"' not in outcome.out:
        return outcome
    told = json.loads(outcome.out)
    for graph in told["graphs"]:
        for run in graph.get("passes", ()):
            run["seconds"] = 0
    return Outcome(outcome.code, json.dumps(told), outcome.err)


def test_a_summary_of_changes_and_failures(many: Path) -> None:
    done = scanopt("optimize", many, "--jobs", 2)
    changed, found = done.out.splitlines()[-2:]
    assert changed == "changed 3 of 4 graphs"
    assert " in 4 graphs" in found or " of 4 graphs" in found
    assert done.err.splitlines()[-1] == "scanopt: 1 of 5 graphs failed"


@pytest.mark.parametrize("command", ["check", "optimize", "hash"])
def test_json_lines_are_the_entries_of_json(command: str, many: Path) -> None:
    whole = json.loads(scanopt(command, many, "--format", "json").out)
    lines = scanopt(command, many, "--format", "jsonl").out.splitlines()
    head = {name: value for name, value in whole.items() if name != "graphs"}
    assert [*head][:2] == ["schema", "command"]
    told = [json.loads(line) for line in lines]
    if command == "optimize":
        for graph in (*told, *whole["graphs"]):
            for run in graph.get("passes", ()):
                run["seconds"] = 0
    assert told == [head | entry for entry in whole["graphs"]]
    assert len(told) == 5


@pytest.mark.deep
def test_pytensor_is_imported_once_a_worker(many: Path, tmp_path: Path) -> None:
    for number in range(8):
        shutil.copy(many / "clean.pkl", many / f"more{number}.pkl")
    imports = tmp_path / "imports"
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\n"
        "class Counting:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'pytensor':\n"
        f"            with open({str(imports)!r}, 'a') as file: print(os.getpid(), file=file)\n"
        "sys.meta_path.insert(0, Counting())\n"
    )
    done = process("hash", many, "--jobs", 2, PYTHONPATH=_path(tmp_path))
    assert len(done.out.splitlines()) == 12
    pids = imports.read_text().split()
    assert len(pids) == len(set(pids)) <= 3  # two workers, and the command itself


def _path(first: Path) -> str:
    return os.pathsep.join([str(first), *filter(None, [os.environ.get("PYTHONPATH")])])


class _Calling:
    """What a trusted file holds that calls a function as it is read."""

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self.call = function, arguments

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self.call


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc for the processes of a session")
@pytest.mark.parametrize("how", [signal.SIGINT, *deep(signal.SIGTERM, signal.SIGKILL)])
def test_an_end_from_outside_leaves_no_process(
    how: signal.Signals, files: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "graphs"
    folder.mkdir()
    shutil.copy(files / "clean.pkl", folder / "1.pkl")
    for name in ("2", "3", "4"):
        waits = [_Calling(os.mkdir, str(tmp_path / f"at {name}")), _Calling(time.sleep, 100)]
        (folder / f"{name}.pkl").write_bytes(pickle.dumps(waits))
    command = [sys.executable, "-m", "scanopt_cli", "check", folder, "--jobs", "2", "--trust"]
    command += ["--format", "jsonl"]
    started = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        text=True,
    )
    assert started.stdout is not None
    first = json.loads(started.stdout.readline())  # it comes while the others are in work
    assert first["source"] == str(folder / "1.pkl")
    _wait(lambda: len(list(tmp_path.glob("at *"))) == 2)
    assert len(_session(started.pid)) >= 3  # the workers, too
    if how is signal.SIGINT:
        os.killpg(started.pid, how)  # as a terminal does
    else:
        started.send_signal(how)
    out, err = started.communicate(timeout=60)
    _wait(lambda: not _session(started.pid))
    if how is signal.SIGINT:
        assert (started.returncode, out) == (130, "")
        assert err == "scanopt: stopped: 1 of 4 graphs are done\n"
    else:
        assert (started.returncode, out, err) == (-how, "", "")
    assert not (tmp_path / "at 4").exists()


def _wait(until: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not until():
        assert time.monotonic() < end
        time.sleep(0.05)


def _session(leader: int) -> list[str]:
    """Return the processes of a session that run."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            _, _, rest = path.read_text().rpartition(")")
        except OSError:  # it has ended meanwhile
            continue
        state, _, _, session, *_ = rest.split()
        if int(session) == leader and state != "Z":
            found.append(path.parent.name)
    return found
