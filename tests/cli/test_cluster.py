"""Files that a cluster works on: nothing is lost, nothing comes twice, whatever workers do.

The workers are threads of this process, with child processes of their own, as those of Dask have.
"""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytensor.tensor as pt
import pytest

from scanopt_cli.cli.batch import Batch
from scanopt_cli.cli.children import Children
from scanopt_cli.cli.cluster import OnCluster
from scanopt_cli.cli.cluster_contract import LostError
from scanopt_cli.cli.cluster_work import Order, end, work
from scanopt_cli.cli.exits import ExitCode
from scanopt_cli.cli.file_work import digest_of
from scanopt_cli.cli.jobs import Setting
from scanopt_cli.cli.where import Cluster, ClusterError, where_to_work
from scanopt_cli.environment import JOBS
from scanopt_cli.errors import ScanoptError
from scanopt_cli.serialization.converting import as_data
from scanopt_cli.serialization.files import Blob
from support.file_tasks import Running, RunningAnywhere

DIES = "import os; os._exit(3)"
FAILS = "from scanopt_cli.errors import ScanoptError\nraise ScanoptError('no', where='here')"
SLOW = "import time; time.sleep(0.2)"


@dataclass
class ThreadWorkers:
    """Workers with a thread each; ``before`` is called before one starts with a file."""

    usable: dict[str, int] = field(default_factory=lambda: {"a": 1, "b": 1})
    before: Callable[[str, Path], None] = lambda _worker, _path: None
    begun: list[tuple[str, str]] = field(default_factory=list)
    held: int = 0

    def __post_init__(self) -> None:
        self._threads = {worker: ThreadPoolExecutor(1) for worker in "abcdef"}
        self._works: dict[Any, str] = {}
        self.ended: list[str] = []

    def look(self) -> None:
        if not self.usable:
            raise ClusterError("no worker is left", where="--cluster here")

    def start(self, worker: str, order: bytes, call: Callable[[Any], None]) -> Any:
        wanted: Order = pickle.loads(order)
        self.before(worker, wanted.path)
        self.begun.append((worker, wanted.path.name))
        future: Future[bytes] = self._threads[worker].submit(work, order)
        self._works[future] = worker
        self.held = max(self.held, sum(not each.done() for each in self._works))
        future.add_done_callback(call)
        return future

    def result(self, work: Any) -> bytes:
        if self._works[work] not in self.usable:
            raise LostError
        return work.result()

    def cancel(self, work: Any) -> None:
        work.cancel()

    def end(self, run: str) -> None:
        self.ended.append(run)
        end(run)

    def lose(self, worker: str) -> None:
        self.usable.pop(worker, None)


@dataclass
class Ran:
    batch: Batch
    code: ExitCode | None
    found: list[Any]
    pids: set[int]
    error: ScanoptError | None = None


def ran(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    scripts: Sequence[str],
    workers: ThreadWorkers,
    task: Callable[[], Running] = RunningAnywhere,
) -> Ran:
    files = {}
    for number, script in enumerate(scripts):
        files[folder / f"{number:02}.py"] = None
        (folder / f"{number:02}.py").write_text(script)
    monkeypatch.setattr(
        "scanopt_cli.cli.batch._runner", lambda tasks, _where, show: OnCluster(tasks, workers, show)
    )
    done = Ran(Batch(files, Cluster("here", "--cluster here")), None, [], set())

    def take(path: Path, made: Any) -> None:
        assert path.name == made[0]
        done.found.append(made[0])
        done.pids.add(made[1])

    try:
        done.batch.run(lambda _path: task(), take)
        done.code = done.batch.finish()
    except ScanoptError as error:
        done.error = error
    assert len(workers.ended) == 1
    return done


def names(count: int) -> list[str]:
    return [f"{number:02}.py" for number in range(count)]


def test_results_come_in_the_order_of_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = ThreadWorkers()
    done = ran(monkeypatch, tmp_path, [SLOW, "", "", SLOW, "", "code = 1", "", ""], workers)
    assert (done.code, done.found) == (1, names(8))
    assert sorted(name for _, name in workers.begun) == names(8)
    assert {worker for worker, _ in workers.begun} == {"a", "b"}
    assert len(done.pids) == 2
    assert os.getpid() not in done.pids
    assert workers.held <= 4  # one that each works on, and one that waits there


def test_an_error_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done = ran(monkeypatch, tmp_path, ["", FAILS, "raise KeyError('a fault')", ""], ThreadWorkers())
    assert (done.code, done.found) == (2, ["00.py", "03.py"])
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "scanopt: error: here: no"
    assert "KeyError" in lines[1]
    assert lines[2] == "scanopt: 2 of 4 graphs failed"


def test_what_ends_a_process_is_done_once_more_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    workers = ThreadWorkers()
    once = f"import os\nif not os.path.exists({str(tmp_path / 'was')!r}):\n"
    once += f"    open({str(tmp_path / 'was')!r}, 'w').close(); os._exit(3)"
    done = ran(monkeypatch, tmp_path, ["", once, DIES, ""], workers)
    assert (done.code, done.found) == (2, ["00.py", "01.py", "03.py"])
    for name in ("01.py", "02.py"):
        assert sorted(worker for worker, each in workers.begun if each == name) == ["a", "b"]
    (path,) = done.batch.failures
    error = capsys.readouterr().err.splitlines()[0]
    assert error.startswith(f"scanopt: error: {path}: the process that worked on it died")


def test_with_one_worker_it_is_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = ThreadWorkers({"a": 1})
    done = ran(monkeypatch, tmp_path, ["", DIES, ""], workers)
    assert (done.code, done.found) == (2, ["00.py", "02.py"])
    assert len(workers.begun) == 3


def test_files_of_a_worker_that_is_lost_go_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = ThreadWorkers()

    def lose(worker: str, path: Path) -> None:
        if path.name == "05.py":
            workers.lose("a")
            workers.usable["c"] = 1

    workers.before = lose
    done = ran(monkeypatch, tmp_path, [SLOW] * 10, workers)
    assert (done.code, done.found) == (0, names(10))
    assert {worker for worker, _ in workers.begun} == {"a", "b", "c"}


def test_a_file_that_costs_three_workers_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    workers = ThreadWorkers()
    new = iter("cdef")

    def lose(worker: str, path: Path) -> None:
        if path.name == "01.py":
            workers.lose(worker)
            workers.usable[next(new)] = 1

    workers.before = lose
    done = ran(monkeypatch, tmp_path, [SLOW] * 5, workers)
    assert (done.code, done.found) == (2, ["00.py", "02.py", "03.py", "04.py"])
    assert len([name for _, name in workers.begun if name == "01.py"]) == 3
    assert (
        "01.py: 3 workers of the cluster were lost while they worked on it"
        in capsys.readouterr().err
    )


def test_without_workers_it_ends_with_what_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    workers = ThreadWorkers({"a": 1})

    def lose(worker: str, path: Path) -> None:
        if path.name == "03.py":
            workers.usable.clear()

    workers.before = lose
    done = ran(monkeypatch, tmp_path, ["", "", "", SLOW, SLOW], workers)
    assert str(done.error) == "--cluster here: no worker is left"
    assert done.found == names(len(done.found))
    told = capsys.readouterr().err
    assert f"scanopt: stopped: {len(done.found)} of 5 graphs are done\n" in told


def test_one_that_takes_too_long_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sleeps = "import time; time.sleep(60)"
    done = ran(
        monkeypatch, tmp_path, ["", sleeps, ""], ThreadWorkers(), lambda: RunningAnywhere(1.0)
    )
    assert (done.code, done.found) == (2, ["00.py", "02.py"])
    assert "01.py: takes more than 1 seconds" in capsys.readouterr().err


def test_what_is_no_data_is_worked_on_by_a_process_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = ThreadWorkers()
    done = ran(monkeypatch, tmp_path, ["", "", ""], workers, Running)
    assert (done.code, done.found, workers.begun) == (0, names(3), [])
    assert os.getpid() not in done.pids


def test_a_worker_takes_no_pickle(tmp_path: Path) -> None:
    order = Order(
        run="run",
        setting=Setting.here(),
        share=1,
        task=Running(),
        path=tmp_path / "a.pkl",
        files=[Blob("a.pkl", pickle.dumps({}))],
        seconds=None,
    )
    try:
        result = pickle.loads(work(pickle.dumps(order)))
    finally:
        end("run")
    assert str(result.error) == f"{tmp_path / 'a.pkl'}: is a pickle, which is not sent"


def test_what_is_kept_of_a_file_is_found_by_what_it_was() -> None:
    x = pt.dscalar("x")
    file = Blob("a.pkl", pickle.dumps(([x], [x + 1])))
    sent = as_data(file, trust=False, allow_packages=())
    assert sent.data != file.data
    assert digest_of([sent]) == digest_of([file])
    assert digest_of([Blob("a.pkl", sent.data)]) != digest_of([file])


def test_children_end_that_nobody_needs(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("")
    children = Children(Setting.here(), 1, idle=0.2)
    result = children.work(Running(), tmp_path / "a.py")
    assert result.done is not None
    _, pid = result.done.found
    until = time.monotonic() + 30
    while not children.is_empty or _is_running(pid):
        assert time.monotonic() < until
        time.sleep(0.05)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_where_says_what_the_options_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(JOBS, raising=False)
    monkeypatch.setattr("scanopt_cli.cli.where.find_spec", lambda _name: object())
    file = tmp_path / "scheduler.json"
    file.write_text('{"address": "tcp://host:1"}')
    assert where_to_work(None, None, None) is None
    assert where_to_work(3, None, None) == 3
    assert where_to_work(None, "host:2", None) == Cluster("host:2", "--cluster host:2")
    assert where_to_work(None, None, file) == Cluster("tcp://host:1", f"--scheduler-file {file}")
    monkeypatch.setenv(JOBS, "3")
    assert isinstance(where_to_work(3, "host:2", None), Cluster)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"{", "is no JSON"),
        (b"\xff\xfe", "is no JSON"),
        (b"[]", "holds no address of a scheduler"),
        (b'{"address": 3}', "holds no address of a scheduler"),
    ],
)
def test_a_broken_scheduler_file_is_told(
    content: bytes | None, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scanopt_cli.cli.where.find_spec", lambda _name: object())
    file = tmp_path / "scheduler.json"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ScanoptError, match=problem):
        where_to_work(None, None, file)


def test_options_that_say_different_things_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(JOBS, raising=False)
    with pytest.raises(ScanoptError, match="--jobs: is not for --cluster"):
        where_to_work(2, "host:2", None)
    with pytest.raises(ScanoptError, match="--scheduler-file: is not for --cluster"):
        where_to_work(None, "host:2", tmp_path)


def test_without_dask_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(JOBS, raising=False)
    monkeypatch.setattr("scanopt_cli.cli.where.find_spec", lambda _name: None)
    with pytest.raises(ScanoptError, match=r"pip install 'scanopt\[dask\]'"):
        where_to_work(None, "host:2", None)
