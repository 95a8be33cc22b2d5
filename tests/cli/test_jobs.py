"""Files worked on side by side: nothing is lost, nothing comes twice, whatever workers do."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from scanopt_cli.cli.batch import Batch
from scanopt_cli.cli.exits import ExitCode
from scanopt_cli.errors import ScanoptError
from support.file_tasks import Running

DIES = "import os; os._exit(3)"
CRASHES = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
FAILS = "from scanopt_cli.errors import ScanoptError\nraise ScanoptError('no', where='here')"
BREAKS = "raise KeyError('a fault')"
SLEEPS = "import time; time.sleep(60)"
TELLS = (
    "import sys, warnings, logging\nfrom scanopt_cli.cli.console import out, tell\n"
    "tell(f'begins {found}'); out().out(found); print('raw', file=sys.stderr); tell('ends')"
)


@dataclass
class Ran:
    """What a batch found, told and returned."""

    batch: Batch
    code: ExitCode
    found: list[Any] = field(default_factory=list)
    pids: set[int] = field(default_factory=set)


def ran(folder: Path, scripts: Sequence[str], jobs: int = 2, seconds: float | None = None) -> Ran:
    files = {}
    for number, script in enumerate(scripts):
        files[folder / f"{number:02}.py"] = None
        (folder / f"{number:02}.py").write_text(script)
    batch, found, pids = Batch(files, jobs), [], set()

    def take(path: Path, done: Any) -> None:
        assert path.name == done[0]
        found.append(done[0])
        pids.add(done[1])

    batch.run(lambda _path: Running(seconds), take)
    try:
        code = batch.finish()
    except ScanoptError:
        code = ExitCode.FAILED
    return Ran(batch, code, found, pids)


def test_results_come_in_the_order_of_files(tmp_path: Path) -> None:
    slow = "import time; time.sleep(0.3)"
    done = ran(tmp_path, [slow, "", "", slow, "", "code = 1", "", ""])
    assert (done.code, done.found) == (1, [f"{number:02}.py" for number in range(8)])
    assert len(done.pids) == 2
    assert os.getpid() not in done.pids


@pytest.mark.parametrize("jobs", [0, 2])
def test_one_file_needs_no_worker(jobs: int, tmp_path: Path) -> None:
    assert ran(tmp_path, ["assert title.endswith('00.py')"], jobs).pids == {os.getpid()}


def test_without_jobs_all_is_done_here(tmp_path: Path) -> None:
    done = ran(tmp_path, ["", "assert title.endswith('01.py (2 of 3)'), title", ""], 0)
    assert (done.code, done.pids) == (0, {os.getpid()})


@pytest.mark.parametrize("jobs", [0, 2])
def test_errors_of_any_kind_stop_no_other(
    jobs: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = ran(tmp_path, ["", FAILS, BREAKS, ""], jobs)
    assert (done.code, done.found) == (2, ["00.py", "03.py"])
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "scanopt: error: here: no"
    assert lines[1].startswith(
        f"scanopt: error: {tmp_path / '02.py'}: KeyError: 'a fault'; this is"
    )
    assert lines[2:] == ["scanopt: 2 of 4 graphs failed"]


@pytest.mark.skipif(sys.platform == "win32", reason="there, exit codes are not known")
@pytest.mark.parametrize(
    ("script", "how"), [(DIES, "EXIT(3)"), (CRASHES, f"SIGSEGV({-signal.SIGSEGV})")]
)
def test_the_file_that_ends_a_worker_is_told_and_no_other_is_lost(
    script: str, how: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    busy = "import time; time.sleep(0.5); print(found)"
    done = ran(tmp_path, [busy, busy, script, busy, busy, ""])
    names = [f"{number:02}.py" for number in (0, 1, 3, 4, 5)]
    assert (done.code, done.found) == (2, names)
    shown = capsys.readouterr()
    assert shown.out.split() == names[:-1]
    death = f"{tmp_path / '02.py'}: the process that worked on it died ({how})"
    assert shown.err.splitlines()[0] == f"scanopt: error: {death}"
    assert done.batch.failures == {tmp_path / "02.py": death}


def test_several_that_end_workers_are_each_told(tmp_path: Path) -> None:
    done = ran(tmp_path, [DIES, DIES, "", "", DIES])
    assert (done.code, done.found) == (2, ["02.py", "03.py"])
    assert [path.name for path in done.batch.failures] == ["00.py", "01.py", "04.py"]


def test_a_worker_that_dies_after_its_file_costs_no_other(tmp_path: Path) -> None:
    later = "import threading, os; threading.Timer(0.4, os._exit, [3]).start()"
    busy = "import time; time.sleep(0.3)"
    done = ran(tmp_path, [later, busy, busy, busy, later, busy, busy])
    assert (done.code, done.found) == (0, [f"{number:02}.py" for number in range(7)])


@pytest.mark.parametrize("jobs", [1, 2])
def test_the_last_file_is_not_taken_for_what_ended_a_worker(jobs: int, tmp_path: Path) -> None:
    """It runs when what the first left running ends its process, with nothing beside it."""
    later = "import threading, os; threading.Timer(0.5, os._exit, [3]).start()"
    done = ran(tmp_path, [later, "import time; time.sleep(1.5)"], jobs)
    assert (done.code, done.found) == (0, ["00.py", "01.py"])


def test_one_that_sleeps_is_given_up(tmp_path: Path) -> None:
    done = ran(tmp_path, ["", SLEEPS, "", "", ""], seconds=3)
    assert (done.code, done.found) == (2, ["00.py", "02.py", "03.py", "04.py"])
    (why,) = done.batch.failures.values()
    assert "01.py: takes more than 3 seconds; use --trust" in why


def test_what_a_file_leads_to_is_told_with_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    slow = f"import time; time.sleep(0.3)\n{TELLS}"
    past_python = "import os; os.write(1, b'x'); os.write(2, b'y')"
    ran(tmp_path, [slow, TELLS, past_python])
    shown = capfd.readouterr()
    assert shown.out == "00.py\n01.py\n"
    told = ["begins {}", "raw", "ends"]
    lines = [line.removeprefix("scanopt: ") for line in shown.err.splitlines()]
    assert lines == [line.format(name) for name in ("00.py", "01.py") for line in told]


def test_a_worker_that_keeps_memory_is_replaced(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Where psutil is there, by which loky knows."""
    pytest.importorskip("psutil")
    keeps = "import builtins, time; builtins.kept = b'x' * (400 << 20); time.sleep(1.2)"
    busy = "import time; time.sleep(0.5)"
    done = ran(tmp_path, [busy, busy, keeps, keeps, "", ""])
    assert (done.code, len(done.found)) == (0, 6)
    assert len(done.pids) > 2
    assert capfd.readouterr() == ("", "")


def test_workers_share_the_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from scanopt_cli.cli import jobs

    monkeypatch.setattr(jobs, "cores", lambda: 6)
    monkeypatch.setenv("MKL_NUM_THREADS", "5")  # the user's own wish
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    check = (
        "import os; assert [os.environ[f'{n}_NUM_THREADS'] for n in ('OMP', 'MKL')] == ['3', '5']"
    )
    assert ran(tmp_path, [check, check]).code == 0


def test_results_that_wait_do_not_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from scanopt_cli.cli import jobs

    monkeypatch.setattr(jobs, "MOST_HELD", 1_000)
    at_work = tmp_path / "at work"
    first = f"import time, os; time.sleep(1); assert not os.path.exists({str(at_work / '4')!r})"
    others = [
        f"import os; os.makedirs({str(at_work / str(number))!r}); print('x' * 600)"
        for number in range(1, 6)
    ]
    done = ran(tmp_path, [first, *others])
    assert (done.code, len(done.found)) == (0, 6)
    assert len(list(at_work.iterdir())) == 5
