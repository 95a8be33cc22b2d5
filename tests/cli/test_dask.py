"""Graphs that the workers of a real Dask cluster work on: what is printed and written is the same.

The scheduler and the workers are processes of their own, or those of a `LocalCluster`.
"""

from __future__ import annotations

import os
import pickle
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from shutil import which
from typing import Any

import pytensor
import pytensor.tensor as pt
import pytest

from scanopt_cli.cli.batch import Batch
from scanopt_cli.cli.where import Cluster
from scanopt_cli.errors import ScanoptError
from scanopt_cli.serialization.loading import load
from scanopt_cli.serialization.saving import save
from support.command_line import Outcome, process, scanopt
from support.dask_clusters import ROOT, DaskCluster, dask_cluster, wait_for
from support.file_tasks import RunningAnywhere
from support.git import commit, repository

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaskCluster]:
    """A scheduler with two workers, of which one has a nanny."""
    with dask_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        cluster.start_worker()
        cluster.start_worker("--no-nanny")
        yield cluster


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[DaskCluster]:
    """A scheduler without workers, for one test."""
    folder = tmp_path / "cluster"
    folder.mkdir()
    with dask_cluster(folder) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def folder(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with graphs as data and as pickles, some of which are broken."""
    folder = repository(tmp_path_factory.mktemp("repository"))
    graphs = folder / "graphs"
    graphs.mkdir()
    for name in ("clean", "wasteful", "hessian"):
        shutil.copy(files / f"{name}.pkl", graphs)
    for name in ("power", "grad", "off"):
        save(load(files / f"{name}.pkl"), graphs / f"{name}.scanopt")
    save(load(files / "grad.pkl"), graphs / "packed.scanopt.gz")
    (graphs / "broken.pkl").write_bytes(b"junk")
    (graphs / "cut.scanopt").write_bytes((graphs / "power.scanopt").read_bytes()[:300])
    weight = pytensor.shared(3.0, "weight")
    weight.default_update = weight * 2  # type: ignore[assignment]
    x = pt.dvector("x")
    (graphs / "updated.pkl").write_bytes(pickle.dumps(([x], [(x * weight).sum()])))
    (graphs / "runs.pkl").write_bytes(pickle.dumps(_Calling(f"touch {folder / 'has_run'}")))
    commit(folder)
    shutil.copytree(graphs, folder / "earlier")
    shutil.copy(files / "power.pkl", graphs / "wasteful.pkl")
    save(load(files / "hessian.pkl"), graphs / "grad.scanopt")
    return folder


class _Calling:
    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> Any:
        return os.system, (self.command,)


_PROGRAM = """
import pytensor.tensor as pt
import scanopt_cli as so
from pytensor import scan

x = pt.dscalar("x")
hs = scan(lambda h: pt.tanh(h * x), outputs_info=[x], n_steps=9, return_updates=False)
so.save(([x], [pt.grad(hs[-1], x)]), "loop.scanopt", keep_traces=True)
"""


def test_lines_of_programs_are_told_from_the_directory_of_the_user(
    tmp_path: Path, cluster: DaskCluster
) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "decay.py").write_text(_PROGRAM)
    environment = {**os.environ, "PYTENSOR_FLAGS": "cxx=,linker=vm,traceback__limit=8"}
    subprocess.run([sys.executable, "models/decay.py"], cwd=tmp_path, env=environment, check=True)
    here, there = _both(tmp_path, cluster, "check", "loop.scanopt")
    assert "models/decay.py:7" in here.out
    assert there == here


def _both(folder: Path, cluster: DaskCluster, *arguments: str) -> tuple[Outcome, Outcome]:
    here = scanopt(*arguments, "--jobs", "0", cwd=folder)
    there = scanopt(*arguments, "--scheduler-file", cluster.scheduler_file, cwd=folder)
    assert not (folder / "has_run").exists()
    return here, there


@pytest.mark.parametrize(
    "command",
    [
        "hash graphs graphs/missing.pkl --inner",
        "hash graphs --format json",
        "check graphs",
        "check graphs --format jsonl",
        "check graphs/power.scanopt",
        "check graphs/broken.pkl",
        "optimize graphs/power.scanopt graphs/clean.pkl --verify -v",
        "verify earlier graphs --mode plain --runs 2",
        "diff earlier graphs --stat",
        "diff --against main graphs",
        "diff --against main graphs --budget scans=1 --format json",
    ],
)
def test_all_is_as_it_is_here(command: str, folder: Path, cluster: DaskCluster) -> None:
    here, there = _both(folder, cluster, *command.split())
    assert _without_times(there) == _without_times(here)
    assert here.out + here.err


def _without_times(done: Outcome) -> Outcome:
    return Outcome(
        *(done.code, *(re.sub(r"\d[\d.]* m?s\b", "SECONDS", text) for text in (done.out, done.err)))
    )


@pytest.mark.parametrize("command", ["optimize graphs -o OUT", "check graphs --fix -o OUT"])
def test_what_is_written_is_the_same(
    command: str, folder: Path, cluster: DaskCluster, tmp_path: Path
) -> None:
    written = {}
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    # PyTensor shares parts of the graphs that a process had before.
    process(*command.replace("OUT", str(tmp_path / "here")).split(), "-j", "0", cwd=folder)
    where = ("--cluster", cluster.address)
    scanopt(*command.replace("OUT", str(tmp_path / "there")).split(), *where, cwd=folder)
    for name in ("here", "there"):
        hashed = scanopt("hash", ".", "--names", "--inner", "-j", "0", cwd=tmp_path / name)
        assert hashed.code == 0
        data = {path.name: path.read_bytes() for path in (tmp_path / name).glob("*.scanopt")}
        written[name] = hashed, data
    assert len(written["here"][1]) >= 3
    assert written["there"] == written["here"]


def test_locks_are_the_same(folder: Path, cluster: DaskCluster) -> None:
    good = ("graphs/clean.pkl", "graphs/power.scanopt", "graphs/packed.scanopt.gz")
    locks = [folder / name for name in ("here.lock", "there.lock")]
    for lock, where in zip(locks, (("-j", "0"), ("--cluster", cluster.address)), strict=True):
        done = scanopt("lock", *good, "-o", lock, *where, cwd=folder)
        assert done.code == 0, done.err
    assert locks[1].read_text() == locks[0].read_text()
    text = locks[0].read_text()
    assert '"sha256"' in text
    # Of another scanopt, so that the bytes do not say that all is as it was.
    locks[0].write_text(re.sub(r'("sha256": ")[0-9a-f]{8}', r"\g<1>00000000", text))
    here, there = _both(folder, cluster, "status", "graphs", "--lock", str(locks[0]))
    assert (there, here.code) == (here, 2)


def test_a_trusted_pickle_runs_here_alone(folder: Path, cluster: DaskCluster) -> None:
    command = ("hash", "graphs/hessian.pkl", "--trust")
    here = scanopt(*command, "-j", "0", cwd=folder)
    there = scanopt(*command, "--cluster", cluster.address, cwd=folder)
    assert there == here


@pytest.mark.skipif(which("openssl") is None, reason="makes a certificate by openssl")
def test_tls_as_dask_is_configured_for_it(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import dask

    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=127.0.0.1", "-keyout", key, "-out", certificate),
        ],
        check=True,
        capture_output=True,
    )
    settings = {"ca-file": str(certificate)}
    for who in ("scheduler", "worker", "client"):
        settings |= {f"{who}.cert": str(certificate), f"{who}.key": str(key)}
    for name, value in settings.items():
        variable = re.sub(r"\.", "__", name.replace("-", "_")).upper()
        monkeypatch.setenv(f"DASK_DISTRIBUTED__COMM__TLS__{variable}", value)
    own = DaskCluster(tmp_path)
    with dask.config.set({f"distributed.comm.tls.{name}": v for name, v in settings.items()}):
        try:
            own.start_scheduler("--protocol", "tls")
            own.start_worker()
            address = own.address
            assert address.startswith("tls://")
            there = scanopt("hash", "graphs", "--cluster", address, cwd=folder)
        finally:
            own.stop()
    assert there == scanopt("hash", "graphs", "-j", "0", cwd=folder)
    _assert_unreachable(folder, address)


def test_a_local_cluster_does_it_too(folder: Path) -> None:
    from distributed import LocalCluster

    path = os.pathsep.join(map(str, (ROOT, ROOT / "tests")))
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = path
    try:
        with LocalCluster(
            n_workers=2, threads_per_worker=2, processes=True, dashboard_address=None
        ) as local:
            there = scanopt("check", "graphs", "--cluster", local.scheduler_address, cwd=folder)
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
    assert there == scanopt("check", "graphs", "-j", "0", cwd=folder)


def _ran(cluster: DaskCluster, folder: Path, scripts: Sequence[str]) -> tuple[Batch, list[str]]:
    """Let a cluster run scripts; return what was found in their order."""
    folder.mkdir()
    files = {folder / f"{number:02}.py": None for number in range(len(scripts))}
    for file, script in zip(files, scripts, strict=True):
        file.write_text(script)
    batch, found = Batch(dict(files), Cluster(cluster.address, "--cluster")), []
    batch.run(lambda _path: RunningAnywhere(), lambda _path, made: found.append(str(made[0])))
    return batch, found


def _noting(folder: Path) -> str:
    """Return a script that notes the worker whose child works on it, and takes a while."""
    return (
        "import os, time\nfrom pathlib import Path\n"
        f"Path({str(folder)!r}, str(os.getppid()), title[-5:]).mkdir(parents=True, exist_ok=True)\n"
        "time.sleep(0.3)"
    )


def _names(count: int) -> list[str]:
    return [f"{number:02}.py" for number in range(count)]


@pytest.mark.parametrize("options", [[], ["--no-nanny"]])
def test_a_worker_is_killed_in_the_middle(
    options: list[str], own_cluster: DaskCluster, tmp_path: Path
) -> None:
    first = own_cluster.start_worker("--no-nanny")
    own_cluster.start_worker(*options)
    noted = tmp_path / "begun"
    noted.mkdir()

    def kill() -> None:
        wait_for(lambda: len(list(noted.glob(f"{first.pid}/*"))) >= 3)
        first.kill()

    killing = threading.Thread(target=kill)
    killing.start()
    batch, found = _ran(own_cluster, tmp_path / "scripts", [_noting(noted)] * 20)
    killing.join()
    assert (batch.finish(), found) == (0, _names(20))
    assert first.wait(10) == -signal.SIGKILL


def test_a_worker_freezes_in_the_middle_and_wakes(
    own_cluster: DaskCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scanopt_cli.cli.cluster_workers.SILENCE", 3.0)
    first = own_cluster.start_worker("--no-nanny")
    second = own_cluster.start_worker("--no-nanny")
    noted = tmp_path / "begun"
    noted.mkdir()

    def begun(worker: subprocess.Popen[bytes]) -> set[str]:
        return {path.name for path in noted.glob(f"{worker.pid}/*")}

    had: set[str] = set()

    def freeze() -> None:
        wait_for(lambda: len(begun(first)) >= 3)
        first.send_signal(signal.SIGSTOP)
        time.sleep(1)  # a result may be on its way
        had.update(begun(first))
        wait_for(lambda: had & begun(second))
        first.send_signal(signal.SIGCONT)
        wait_for(lambda: begun(first) > had)

    freezing = threading.Thread(target=freeze)
    freezing.start()
    try:
        batch, found = _ran(own_cluster, tmp_path / "scripts", [_noting(noted)] * 60)
    finally:
        first.send_signal(signal.SIGCONT)
        freezing.join()
    assert (batch.finish(), found) == (0, _names(60))
    assert begun(first) > had
    assert had & begun(second)


def test_a_process_that_runs_out_of_memory_is_one_of_its_own(
    own_cluster: DaskCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    poor = own_cluster.start_worker("--no-nanny")
    own_cluster.start_worker("--no-nanny")
    # What the system does to the process of the one worker, which has no memory for any file.
    script = (
        "import os, signal\n"
        f"if os.getppid() == {poor.pid}:\n    os.kill(os.getpid(), signal.SIGKILL)"
    )
    always = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"
    batch, found = _ran(own_cluster, tmp_path / "scripts", [script, script, always, script])
    assert found == ["00.py", "01.py", "03.py"]
    assert [path.name for path in batch.failures] == ["02.py"]
    assert "the process that worked on it died" in capsys.readouterr().err
    assert poor.poll() is None


def test_a_worker_without_memory_fails_no_file(
    own_cluster: DaskCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import resource

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (900 << 20, 900 << 20))

    poor = own_cluster.start_worker("--no-nanny", limits=limit)
    own_cluster.start_worker("--no-nanny")
    noted = tmp_path / "noted"
    script = (
        "import os\nfrom pathlib import Path\n"
        f"Path({str(noted)!r}, str(os.getppid()), title[-5:]).mkdir(parents=True)\n"
        "bytearray(800 << 20)"
    )
    scripts = [script, script, script.replace("800", "8000000"), script]
    batch, found = _ran(own_cluster, tmp_path / "scripts", scripts)
    assert found == ["00.py", "01.py", "03.py"]
    (failed,) = batch.failures
    assert capsys.readouterr().err == f"scanopt: error: {failed}: out of memory\n"
    assert list(noted.glob(f"{poor.pid}/*"))


def test_another_version_is_refused_by_name(
    own_cluster: DaskCluster, folder: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    shutil.copytree(ROOT / "scanopt_cli", other / "scanopt_cli")
    version = other / "scanopt_cli" / "version.py"
    version.write_text(re.sub(r'"[\d.]+"', '"0.0.9"', version.read_text()))
    own_cluster.start_worker("--no-nanny", environment={"PYTHONPATH": str(other)})
    (address,) = own_cluster.workers()
    from scanopt_cli import __version__

    warning = (
        f"scanopt: warning: the worker {address} is not used: "
        f"it has scanopt 0.0.9, here {__version__}\n"
    )
    where = ("--cluster", own_cluster.address)
    alone = scanopt("hash", "graphs/power.scanopt", "graphs/off.scanopt", *where, cwd=folder)
    assert (alone.code, alone.out) == (2, "")
    assert alone.err == (
        f"{warning}scanopt: stopped: 0 of 2 graphs are done\n"
        f"scanopt: error: --cluster {own_cluster.address}: no worker can be used; "
        "install the same versions there as here\n"
    )
    own_cluster.start_worker("--no-nanny")
    there = scanopt("hash", "graphs/power.scanopt", "graphs/off.scanopt", *where, cwd=folder)
    here = scanopt("hash", "graphs/power.scanopt", "graphs/off.scanopt", "-j0", cwd=folder)
    assert (there.code, there.out, there.err) == (0, here.out, warning)


def test_a_worker_that_computes_otherwise_is_refused(
    own_cluster: DaskCluster, folder: Path
) -> None:
    flags = f"{os.environ.get('PYTENSOR_FLAGS', '')},floatX=float32".lstrip(",")
    own_cluster.start_worker("--no-nanny", environment={"PYTENSOR_FLAGS": flags})
    done = scanopt("hash", "graphs/power.scanopt", "--cluster", own_cluster.address, cwd=folder)
    assert done.code == 2
    assert "is not used: it has floatX float32, here float64\n" in " ".join(done.err.split(" "))


def test_a_worker_without_scanopt_is_refused_by_name(
    own_cluster: DaskCluster, folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "scanopt_cli.py").write_text("raise ImportError('there is no scanopt')")
    own_cluster.start_worker("--no-nanny", environment={"PYTHONPATH": str(tmp_path)})
    done = scanopt("hash", "graphs/power.scanopt", "--cluster", own_cluster.address, cwd=folder)
    assert done.code == 2
    assert "is not used: scanopt cannot be run there: ImportError: there is no scanopt" in done.err


def test_if_no_worker_is_left_it_ends(
    own_cluster: DaskCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("scanopt_cli.cli.cluster_workers.PATIENCE", 2.0)
    only = own_cluster.start_worker("--no-nanny")
    kills = f"import os, signal\nos.kill({only.pid}, signal.SIGKILL)"
    with pytest.raises(ScanoptError, match="no worker is left"):
        _ran(own_cluster, tmp_path / "scripts", ["", "", kills, "", ""])
    assert re.search(r"stopped: [0-3] of 5 graphs are done", capsys.readouterr().err)


def test_a_scheduler_that_dies_is_told(
    own_cluster: DaskCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own_cluster.start_worker("--no-nanny")
    (scheduler, _) = own_cluster.processes
    kills = f"import os, signal\nos.kill({scheduler.pid}, signal.SIGKILL)"
    with pytest.raises(ScanoptError, match=r"the scheduler is gone|no worker is left"):
        _ran(own_cluster, tmp_path / "scripts", ["", "", kills, "import time; time.sleep(2)", ""])
    assert "graphs are done" in capsys.readouterr().err


_STOPPED = """
import sys
from pathlib import Path
from scanopt_cli.cli.batch import Batch
from scanopt_cli.cli.where import Cluster
from support.file_tasks import RunningAnywhere
files = {path: None for path in sorted(Path(sys.argv[1]).iterdir())}
try:
    batch = Batch(files, Cluster(sys.argv[2], "--cluster"))
    batch.run(lambda _: RunningAnywhere(), lambda path, _: print(path.name, flush=True))
except KeyboardInterrupt:
    sys.exit(130)
"""


def test_an_interrupt_ends_what_runs_there(cluster: DaskCluster, tmp_path: Path) -> None:
    scripts, noted = tmp_path / "scripts", tmp_path / "noted"
    scripts.mkdir()
    noted.mkdir()
    waits = (
        "import os, time\nfrom pathlib import Path\n"
        f"Path({str(noted)!r}, str(os.getpid())).mkdir()\ntime.sleep(500)"
    )
    for number in range(6):
        (scripts / f"{number}.py").write_text("" if number == 0 else waits)
    path = os.pathsep.join(map(str, (ROOT, ROOT / "tests")))
    started = subprocess.Popen(
        [sys.executable, "-c", _STOPPED, scripts, cluster.address],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert started.stdout is not None
    assert started.stdout.readline() == "0.py\n"
    wait_for(lambda: len(list(noted.iterdir())) == 2)
    os.killpg(started.pid, signal.SIGINT)
    out, err = started.communicate(timeout=60)
    assert (started.returncode, out, err) == (130, "", "scanopt: stopped: 1 of 6 graphs are done\n")
    pids = [int(each.name) for each in noted.iterdir()]
    wait_for(lambda: not any(map(_runs, pids)))
    assert len(pids) == 2


def _runs(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def test_nothing_is_left_when_it_is_over(cluster: DaskCluster, tmp_path: Path) -> None:
    noted = tmp_path / "noted"
    noted.mkdir()
    script = f"import os\nfrom pathlib import Path\nPath({str(noted)!r}, str(os.getpid())).mkdir()"
    _ran(cluster, tmp_path / "scripts", [script] * 2)
    pids = [int(each.name) for each in noted.iterdir()]
    assert pids
    wait_for(lambda: not any(map(_runs, pids)), 20)


def test_where_nobody_listens(folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        _assert_unreachable(folder, address)


def test_where_another_protocol_is_spoken(folder: Path) -> None:
    class Quiet(BaseHTTPRequestHandler):
        def log_message(self, *_arguments: Any) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Quiet)
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    try:
        address = f"tcp://127.0.0.1:{server.server_port}"
        _assert_unreachable(folder, address, "no scheduler answers there in 10 seconds")
    finally:
        with suppress(Exception):
            server.shutdown()


@pytest.mark.parametrize(
    "address", ["http://127.0.0.1:1", "nonsense", "tcp://", "a b", "tls://127.0.0.1:1"]
)
def test_an_address_that_is_none(address: str, folder: Path) -> None:
    _assert_unreachable(folder, address)


def test_the_address_of_a_worker(cluster: DaskCluster, folder: Path) -> None:
    _assert_unreachable(folder, next(iter(cluster.workers())), "is a worker, and no scheduler")


def _assert_unreachable(
    folder: Path, address: str, problem: str = "no scheduler can be reached: "
) -> None:
    graphs = ("graphs/power.scanopt", "graphs/off.scanopt")
    done = scanopt("hash", *graphs, "--cluster", address, cwd=folder)
    assert (done.code, done.out) == (2, "")
    stopped, line = done.err.splitlines()
    assert stopped == "scanopt: stopped: 0 of 2 graphs are done"
    assert line.startswith(f"scanopt: error: --cluster {address}: {problem}")
    assert line.endswith("; give the address of a Dask scheduler, such as tcp://127.0.0.1:8786")
