"""``--html`` writes a page beside every format, whatever the exit code, and over no other file."""

from __future__ import annotations

import base64
import gzip
import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from support.command_line import Outcome, scanopt


def drawn(page: Path) -> list[Any]:
    """Return the pictures of a page."""
    found = re.search(r'id="graphs">([^<]*)<', page.read_text())
    assert found is not None
    pictures: list[Any] = json.loads(gzip.decompress(base64.b64decode(found[1])))["drawn"]
    return pictures


def text(page: Path) -> str:
    """Return what a page says."""
    body = page.read_text().partition("<body>")[2].partition("<script")[0]
    return unescape(re.sub(r"<[^>]*>", "", body))


COMMANDS = [
    (("optimize", "wasteful.pkl"), 0),
    (("check", "wasteful.pkl"), 1),
    (("diff", "wasteful.pkl", "off.pkl"), 1),
    (("diff", "clean.pkl", "clean.pkl"), 0),
    (("grad", "power.pkl", "--no-check"), 0),
    (("inspect", "wasteful.pkl"), 0),
]


@pytest.mark.parametrize(("arguments", "code"), COMMANDS)
def test_each_command_writes_a_page_beside_what_it_prints(
    files: Path, tmp_path: Path, arguments: tuple[str, ...], code: int
) -> None:
    page = tmp_path / "page.html"
    plain = scanopt(*arguments, cwd=files)
    done = scanopt(*arguments, "--html", page, cwd=files)
    assert (done.code, plain.code) == (code, code), done.err
    if arguments[0] != "optimize":  # which tells times
        assert done.out == plain.out
    assert done.err == f"{plain.err}scanopt: wrote {page}\n"
    assert f"scanopt {' '.join(arguments)} --html {page}" in text(page)
    assert drawn(page)


@pytest.mark.parametrize("form", ["json", "markdown"])
@pytest.mark.parametrize("arguments", [one for one, _ in COMMANDS[:3]])
def test_a_page_stands_beside_every_format(
    files: Path, tmp_path: Path, arguments: tuple[str, ...], form: str
) -> None:
    page = tmp_path / "page.html"
    done = scanopt(*arguments, "--format", form, "--html", page, cwd=files)
    assert done.code < 2
    assert drawn(page)
    if form == "json":
        json.loads(done.out)


def test_optimize_draws_a_stage_for_each_pass_that_changed_something(
    files: Path, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    done = scanopt("optimize", "wasteful.pkl", "--html", page, "--print-changed", cwd=files)
    assert done.code == 0
    titles = [stage["title"] for stage in drawn(page)[0]["picture"]["stages"]]
    assert titles[0] == "as given"
    assert "remove-unused" in titles
    for title in titles[1:]:
        assert title in done.err  # what --print-changed tells, too


def test_optimize_check_tells_what_the_passes_mend(files: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert scanopt("optimize", "wasteful.pkl", "--check", "--html", page, cwd=files).code == 1
    assert "What the passes mend, for --check" in text(page)


def test_code_is_python_source_of_steps(files: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert scanopt("inspect", "wasteful.pkl", "--code", "--html", page, cwd=files).code == 0
    assert "import pytensor.tensor as pt" in text(page)


def test_check_fix_draws_the_graph_and_the_mended_one(files: Path, tmp_path: Path) -> None:
    page, out = tmp_path / "page.html", tmp_path / "out.pkl"
    done = scanopt("check", "wasteful.pkl", "--fix", "-o", out, "--html", page, cwd=files)
    assert done.code == 0
    (one,) = drawn(page)
    assert one["sideBySide"]
    assert [stage["title"] for stage in one["picture"]["stages"]] == ["as given", "mended"]


@pytest.mark.deep
def test_bisect_writes_a_page(files: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = scanopt(
        "bisect", "clean.pkl", "-p", "merge-equal", "--mode", "plain", "--html", page, cwd=files
    )
    assert done.code == 0, done.err
    assert "nothing found" in text(page)


def test_of_several_graphs_those_that_fail_are_told(files: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = scanopt("check", "wasteful.pkl", "none.pkl", "clean.pkl", "--html", page, cwd=files)
    assert done.code == 2
    assert len(drawn(page)) == 2
    assert "none.pkl: no such file" in text(page)
    assert "1 graph could not be handled" in text(page)


def test_no_page_of_nothing(files: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    for graphs in (["none.pkl"], ["none.pkl", "nor.pkl"]):
        assert scanopt("check", *graphs, "--html", page, cwd=files).code == 2
        assert not page.exists()


def test_an_earlier_page_is_replaced(files: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    for name in ("wasteful.pkl", "clean.pkl"):
        assert scanopt("inspect", name, "--html", page, cwd=files).code == 0
    assert "clean.pkl" in text(page)
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


@pytest.mark.parametrize(("arguments", "code"), COMMANDS)
def test_no_other_file_is_replaced(
    files: Path, tmp_path: Path, arguments: tuple[str, ...], code: int
) -> None:
    """``check --html *.pkl`` takes the first graph for the name of the page."""
    mine = tmp_path / "mine.html"
    mine.write_text("<!doctype html>mine")
    for target, why in (
        (mine, "is no page of scanopt's"),
        (files / "hessian.pkl", "is no page of scanopt's"),
        (files / arguments[1], "would be overwritten"),
        (tmp_path / "none" / "page.html", "there is no such directory"),
        (tmp_path, "is a directory"),
    ):
        before = target.read_bytes() if target.is_file() else None
        done = scanopt(*arguments, "--html", target, cwd=files)
        assert done.code == 2, target
        assert why in " ".join(done.err.split())
        assert done.out == ""
        assert (target.read_bytes() if target.is_file() else None) == before
    assert mine.read_text() == "<!doctype html>mine"


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (("optimize", "wasteful.pkl", "-o", "{}"), "-o"),
        (("check", "wasteful.pkl", "--fix", "-o", "{}"), "-o"),
        (("grad", "power.pkl", "--no-check", "-o", "{}"), "-o"),
        (("bisect", "clean.pkl", "--repro", "{}"), "--repro"),
    ],
)
def test_two_results_do_not_go_into_one_file(
    files: Path, tmp_path: Path, arguments: tuple[str, ...], option: str
) -> None:
    target = tmp_path / "both"
    given = [argument.format(target) for argument in arguments]
    done = scanopt(*given, "--html", target, cwd=files)
    assert done.code == 2
    assert f"is what {option}" in " ".join(done.err.split())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [("optimize",), ("check", "--fix")])
def test_a_page_is_none_of_several_results(
    files: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    target = tmp_path / "wasteful.pkl"
    graphs = ("wasteful.pkl", "clean.pkl", "-o", tmp_path, "--html", target)
    done = scanopt(*command, *graphs, cwd=files)
    assert done.code == 2
    assert "is what -o writes" in " ".join(done.err.split())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["inspect", "optimize"])
def test_code_is_for_a_page(files: Path, command: str) -> None:
    done = scanopt(command, "wasteful.pkl", "--code", cwd=files)
    assert done.code == 2
    assert "--code: is for --html" in done.err


def test_the_page_of_a_command_that_tells_no_times_is_the_same_each_time(
    files: Path, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    contents = set()
    for _ in range(2):
        assert scanopt("check", "wasteful.pkl", "--html", page, cwd=files).code == 1
        contents.add(page.read_bytes())
    assert len(contents) == 1


def test_without_a_page_nothing_for_it_is_imported(files: Path) -> None:
    code = (
        "import sys; from scanopt_cli.cli.app import run; run(['inspect', 'clean.pkl']); "
        "print([m for m in sys.modules if m.startswith(('jinja2', 'scanopt_cli.page'))])"
    )
    done: Outcome = _python(code, files)
    assert done.out.splitlines()[-1] == "[]"


def _python(code: str, cwd: Path) -> Outcome:
    import sys

    from support.command_line import run

    return run([sys.executable, "-c", code], cwd, {})
