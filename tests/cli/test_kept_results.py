"""Results that are kept: what did not change is not done again, and all else is."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor import config

from scanopt_cli import save
from scanopt_cli import store as store_module
from scanopt_cli.cli import console, kept_results
from scanopt_cli.cli.batch import Batch
from scanopt_cli.cli.exits import ExitCode
from scanopt_cli.cli.file_work import Done, Task
from scanopt_cli.cli.session import Session
from scanopt_cli.environment import directory_of_pytensor
from scanopt_cli.errors import ScanoptError
from scanopt_cli.serialization.files import Blob, read_blob
from scanopt_cli.serialization.values import write_values
from scanopt_cli.store import Store
from support.command_line import process, scanopt
from support.sample_building import samples


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    made = Store(tmp_path / "kept", 8 << 20)
    monkeypatch.setattr(kept_results, "user_store", lambda: made)
    monkeypatch.setenv("SCANOPT_CACHE", "on")
    return made


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    path = tmp_path / "seed_grad.scanopt"
    save(samples()["seed_grad"], path)
    return path


@dataclass(frozen=True, slots=True)
class Counting(Task[int]):
    """Writes down that it worked on a file, and prints its content."""

    option: Any = 1
    is_sure: bool = True
    code: ExitCode = ExitCode.CLEAN
    done_is_kept: bool = True
    target: Path | None = None
    worked: list[str] = field(default_factory=list, compare=False)

    @property
    def is_kept(self) -> bool:
        return self.is_sure

    def read(self, path: Path) -> Sequence[Blob]:
        return (read_blob(path, recorded=True),)

    def work(self, path: Path, files: Sequence[Blob], _title: str, /) -> Done[int]:
        with path.with_name("worked").open("a") as file:
            file.write(f"{path.name}\n")
        if files[0].data == b"error":
            raise ScanoptError("is wrong", where=str(path))
        print(files[0].data.decode())
        written = {} if self.target is None else {self.target: files[0].data}
        return Done(len(files[0].data), None, self.code, written, self.done_is_kept)

    def permissions(self) -> Session:
        return Session(trust=False, allow_packages=())

    def patience(self, path: Path) -> float | None:
        return None


def ran(folder: Path, jobs: int = 0, task: Task[int] | None = None, **files: str) -> Sequence[Any]:
    """Write files and run a task on them: return the exit code, what was found, and the work."""
    for name, content in files.items():
        (folder / name).write_text(content)
    (folder / "worked").write_text("")
    batch, found = Batch({folder / name: None for name in files}, jobs), {}
    batch.run(lambda _path: task or Counting(), lambda path, size: found.update({path.name: size}))
    try:
        code = batch.finish()
    except ScanoptError:
        code = ExitCode.FAILED
    return code, found, sorted((folder / "worked").read_text().split())


@pytest.mark.parametrize("jobs", [0, 2])
def test_only_what_changed_is_done_again(
    jobs: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {"a": "one", "b": "three", "c": "error", "d": "four"}
    found = {"a": 3, "b": 5, "d": 4}
    code, first, worked = ran(tmp_path, jobs, **files)
    assert (code, first, worked) == (2, found, ["a", "b", "c", "d"])
    before = capsys.readouterr()
    assert before.out == "one\nthree\nfour\n"
    assert ran(tmp_path, jobs, **files) == (2, found, ["c"])
    assert capsys.readouterr() == before
    assert ran(tmp_path, jobs, **files | {"b": "fifth!"}) == (2, found | {"b": 6}, ["b", "c"])
    assert capsys.readouterr().out == "one\nfifth!\nfour\n"
    assert ran(tmp_path, jobs, **files) == (2, found, ["c"])


def test_the_exit_code_is_kept_as_well(tmp_path: Path) -> None:
    for worked in (["a"], []):
        assert ran(tmp_path, task=Counting(code=ExitCode.FINDING), a="x") == (1, {"a": 1}, worked)


def test_files_are_written_from_what_is_kept(tmp_path: Path) -> None:
    target = tmp_path / "result"
    for worked in (["a"], []):
        assert ran(tmp_path, task=Counting(target=target), a="x") == (0, {"a": 1}, worked)
        assert target.read_text() == "x"
        target.unlink()


def test_a_place_that_cannot_be_written_to_is_an_error_each_time(tmp_path: Path) -> None:
    target = tmp_path / "directory"
    target.mkdir()
    for _ in range(2):
        assert ran(tmp_path, task=Counting(target=target), a="x")[0] == ExitCode.FAILED


@pytest.mark.parametrize("how", ["not sure", "this time", "off", "debug"])
def test_what_may_not_be_kept_is_done_each_time(
    how: str, tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = Counting(is_sure=how != "not sure", done_is_kept=how != "this time")
    if how == "off":
        monkeypatch.setenv("SCANOPT_CACHE", "off")
    token = kept_results.debugging.set(how == "debug")
    try:
        for _ in range(2):
            assert ran(tmp_path, task=task, a="x") == (0, {"a": 1}, ["a"])
    finally:
        kept_results.debugging.reset(token)
    assert store.usage().entries == 0


def test_all_that_a_result_depends_on_is_in_its_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "files"
    folder.mkdir()

    def is_done_anew(task: Task[int] | None = None) -> bool:
        anew = ran(folder, task=task, a="x")[2] == ["a"]
        assert not ran(folder, task=task, a="x")[2]
        return anew

    assert is_done_anew()
    for option in (2, "1", True, 1.0, None, ("1",), {1: 1}, frozenset({1}), ExitCode.FINDING):
        assert is_done_anew(Counting(option=option)), option
    write_values(folder / "a", [[np.array(1.0)]])
    assert is_done_anew()
    (folder / "a.values.npz").unlink()
    for name in ("COLUMNS", "NO_COLOR", "TERM", "PYTENSOR_FLAGS", "SCANOPT_STRICT"):
        with monkeypatch.context() as changed:
            changed.setenv(name, "133")
            console.out.cache_clear()
            console.err.cache_clear()
            assert is_done_anew(), name
    rc = tmp_path / "rc"
    for text in ("[global]\n", "[global]\nfloatX = float32\n"):
        rc.write_text(text)
        with monkeypatch.context() as changed:
            changed.setenv("PYTENSORRC", str(rc))
            assert is_done_anew(), text
    with monkeypatch.context() as changed:
        changed.chdir(tmp_path)
        assert is_done_anew()
    shutil.copytree(folder, tmp_path / "copy")
    assert ran(tmp_path / "copy", a="x")[2] == ["a"]
    with monkeypatch.context() as changed:
        changed.setattr(kept_results, "_programs", lambda: b"another version")
        assert is_done_anew()
    console.out.cache_clear()
    console.err.cache_clear()
    assert not ran(folder, a="x")[2]


@pytest.mark.parametrize("content", [b"", b"scanopt 1\n", None])
def test_what_is_broken_is_done_again(content: bytes | None, tmp_path: Path, store: Store) -> None:
    ran(tmp_path, a="x")
    (entry,) = store.directory.iterdir()
    if content is None:
        store.put(entry.stem, pickle.dumps("not a result")[:-1])
    else:
        entry.write_bytes(content)
    assert ran(tmp_path, a="x") == (0, {"a": 1}, ["a"])


def test_a_disk_that_is_full_stops_nothing(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module.os, "replace", _full)
    assert ran(tmp_path, a="x") == (0, {"a": 1}, ["a"])
    assert not list(store.directory.iterdir())


def _full(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_programs_that_are_being_written_keep_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    kept_results._programs.cache_clear()
    try:
        assert kept_results.KeptResults.here() is not None
        monkeypatch.setattr(kept_results, "_is_installed", lambda package: package != "pytensor")
        kept_results._programs.cache_clear()
        assert kept_results.KeptResults.here() is None
    finally:
        kept_results._programs.cache_clear()


COMMANDS = {
    "check": ["check"],
    "json": ["check", "--format", "json"],
    "fix": ["check", "--fix", "-o", "OUT"],
    "optimize": ["optimize"],
    "written": ["optimize", "-o", "OUT"],
    "gate": ["optimize", "--check"],
    "verified": ["optimize", "--verify", "--mode", "plain"],
    "hash": ["hash", "--inner"],
    "lock": ["lock", "-o", "LOCK"],
    "verify": ["verify", "GRAPH", "--mode", "plain"],
}


@pytest.mark.tiered(every=6)
@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_commands_tell_the_same_again_without_pytensor(
    command: list[str], graph: Path, tmp_path: Path
) -> None:
    """The second time in a process of its own, since PyTensor is imported in this one."""
    places = {"OUT": tmp_path / "out.scanopt", "LOCK": tmp_path / "scanopt.lock", "GRAPH": graph}
    words = [str(places.get(word, word)) for word in command]
    script = (
        "import sys; from scanopt_cli.cli import app; code = app.run(sys.argv[1:]); "
        "print('pytensor' in sys.modules, file=sys.stderr); sys.exit(code)"
    )
    flags = f"{os.environ['PYTENSOR_FLAGS']},base_compiledir={tmp_path / 'compiled'}"
    environment = {**os.environ, "PYTENSOR_FLAGS": flags, "SCANOPT_CACHE": "on", "COLUMNS": "80"}
    told = []
    for is_imported in (True, False):
        for place in ("OUT", "LOCK"):
            places[place].unlink(missing_ok=True)
        done = subprocess.run(
            [sys.executable, "-c", script, *words, str(graph)],
            env=environment,
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        *errors, last = done.stderr.splitlines()
        assert last == str(is_imported), done.stderr
        results = [place.read_bytes() for place in places.values() if place.exists()]
        told.append((done.returncode, done.stdout, errors, results))
    assert told[0] == told[1]
    assert told[0][0] in (0, 1)


def test_trust_and_pages_are_not_kept(graph: Path, store: Store, tmp_path: Path) -> None:
    for more in (["--trust"], ["--allow-package", "json"], ["--html", tmp_path / "page.html"]):
        assert scanopt("check", graph, *more).code == 1
    for more in (["--time-passes"], ["--print-changed"]):
        assert scanopt("optimize", graph, *more).code == 0
    assert store.usage().entries == 0
    assert scanopt("check", graph).code == 1
    assert store.usage().entries == 1


def test_options_that_are_wrong_are_errors_although_another_result_is_kept(graph: Path) -> None:
    assert scanopt("check", graph).code == 1
    assert scanopt("check", graph, "--select", "X999").code == 2
    assert scanopt("optimize", graph).code == 0
    assert scanopt("optimize", graph, "-p", "no-such-pass").code == 2


def test_processes_keep_and_read_at_once(tmp_path: Path) -> None:
    for name in ("seed", "seed_grad"):
        save(samples()[name], tmp_path / f"{name}.scanopt")
    flags = f"{os.environ['PYTENSOR_FLAGS']},base_compiledir={tmp_path / 'compiled'}"

    def check(_: int) -> tuple[int, str]:
        done = process("check", tmp_path, PYTENSOR_FLAGS=flags, SCANOPT_CACHE="on")
        return done.code, done.out

    with ThreadPoolExecutor(3) as pool:
        found = set(pool.map(check, range(6)))
    assert len(found) == 1
    assert Store(tmp_path / "compiled" / "scanopt", 1 << 30).usage().entries == 2


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Mapping[str, str]]:
    (tmp_path / ".pytensorrc").write_text("[global]\nbase_compiledir = ~/of_rc\n")
    (tmp_path / "other").write_text("[global]\nfloatX = float32\n")
    return {"HOME": str(tmp_path)}


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"PYTENSORRC": "~/other"},
        {"PYTENSORRC": "~/missing"},
        {"PYTENSORRC": f"~/other{os.pathsep}~/.pytensorrc"},
        {"PYTENSOR_FLAGS": "base_compiledir=~/of_flags"},
        {"PYTENSOR_FLAGS": "floatX=float32,base_compiledir='~/a, b',cxx="},
        {"PYTENSOR_FLAGS": "base_compiledir=~/a,base_compiledir=~/b"},
    ],
)
def test_where_pytensor_keeps_things_is_known_without_it(
    settings: dict[str, str], home: Mapping[str, str]
) -> None:
    script = (
        "from scanopt_cli.environment import directory_of_pytensor as found; import sys; "
        "told = found(); assert 'pytensor' not in sys.modules; import pytensor; "
        "print(told, found(), pytensor.config.base_compiledir, sep='\\n')"
    )
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTENSOR")}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**kept, **home, **settings},
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    assert len(set(done.stdout.splitlines())) == 1, done.stdout


def test_pytensor_tells_where_if_it_is_there() -> None:
    assert directory_of_pytensor() == Path(config.base_compiledir)


def test_only_plain_data_has_a_key() -> None:
    with pytest.raises(TypeError, match="not plain data"):
        kept_results._plain(pt.vector("x"))
    one, other = {"a": 1, "b": frozenset({1, 2})}, {"b": frozenset({2, 1}), "a": 1}
    assert kept_results._plain(one) == kept_results._plain(other)
    assert kept_results._plain(["a", "b"]) != kept_results._plain(["ab"])
    assert kept_results._plain(("a",), ("b",)) != kept_results._plain(("a", "b"))
