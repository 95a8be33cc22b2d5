"""What becomes of output that cannot be shown, stored or delivered."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.command_line import scanopt
from support.tiers import deep

SCANOPT = f"{sys.executable} -m scanopt_cli"


@pytest.mark.deep
@pytest.mark.parametrize("encoding", ["cp1252", *deep("ascii", "latin-1")])
def test_output_that_is_not_utf8(files: Path, encoding: str) -> None:
    done = scanopt(
        "optimize", files / "wasteful.pkl", "--diff", "structural", PYTHONIOENCODING=encoding
    )
    assert (done.code, "error" in done.err) == (0, False)
    assert "rows: n+1 -> min(1,n)+1" in done.out
    assert "nodes inside" in done.out
    done = scanopt("optimize", files / "no.pkl", PYTHONIOENCODING=encoding)
    assert (done.code, "bug" in done.err) == (2, False)


def shell(command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("diff {0}/wasteful.pkl {0}/off.pkl", 1),
        *deep(
            ("optimize {0}/wasteful.pkl --diff tree --lines 0", 0),
            ("inspect {0}/wasteful.pkl --format json", 0),
            ("passes --format json", 0),
            ("--help", 0),
            ("--version", 0),
        ),
    ],
)
def test_a_reader_that_leaves_early_changes_no_exit_code(
    files: Path, arguments: str, code: int
) -> None:
    done = shell(f"{SCANOPT} {arguments.format(files)} | head -c 1")
    assert (done.returncode, done.stderr.count("error")) == (code, 0)
    assert "Exception" not in done.stderr


@pytest.mark.parametrize(
    ("closed", "arguments", "code"),
    [
        (">&-", "diff {0}/wasteful.pkl {0}/off.pkl", 1),
        *deep(("2>&-", "diff {0}/wasteful.pkl {0}/off.pkl", 1), ("2>&-", "inspect no.pkl", 2)),
    ],
)
def test_a_closed_stream_changes_no_exit_code(
    files: Path, closed: str, arguments: str, code: int
) -> None:
    done = shell(f"{SCANOPT} {arguments.format(files)} {closed}")
    assert (done.returncode, done.stderr) == (code, "")


# Only Linux and NetBSD have such a device; the tests of CI run there.
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is full")
@pytest.mark.parametrize(
    "arguments", ["inspect {0}/clean.pkl", *deep("passes --format json", "--help")]
)
def test_a_full_disk_is_no_bug(files: Path, arguments: str) -> None:
    done = shell(f"{SCANOPT} {arguments.format(files)} > /dev/full")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "No space left on device" in done.stderr
    assert "bug" not in done.stderr


@pytest.mark.deep
def test_a_graph_is_not_written_to_where_the_report_goes(files: Path, tmp_path: Path) -> None:
    """The link leads to the file that the shell has opened, which would be replaced."""
    report = tmp_path / "report.txt"
    done = shell(f"{SCANOPT} optimize {files}/wasteful.pkl -o /dev/stdout > {report}")
    assert done.returncode == 2
    assert "/dev/stdout: is not a regular file" in done.stderr
    link = report.with_name("link")
    link.symlink_to("/dev/stdout")
    ways = [way for way in ("/proc/self/fd/1", "/dev/fd/1") if Path(way).exists()]
    for target in (link, *ways):
        done = shell(f"{SCANOPT} optimize {files}/wasteful.pkl -o {target} > {report}")
        assert done.returncode == 2
        assert f"{target}: is not a regular file" in done.stderr
    assert "1 unused slot removed" in report.read_text()
