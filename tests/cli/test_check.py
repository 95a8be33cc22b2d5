"""``scanopt check``: what it prints, what it writes, and its exit codes."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytensor
import pytensor.tensor as pt
import pytest

import scanopt_cli as so
from scanopt_cli.integration.scan_calls import recorded_scan_calls
from scanopt_cli.rules.rule_registry import rules
from support.command_line import scanopt


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a wasteful graph, and a folder in it with a clean one."""
    folder = tmp_path_factory.mktemp("graphs")
    (folder / "inner").mkdir()
    x, v = pt.dvector("x"), pt.dscalar("v")
    with recorded_scan_calls():
        ys, logs = pytensor.scan(
            lambda x, s: [pt.sin(s * x), pt.log(x)],
            sequences=[x],
            outputs_info=[v, None],
            return_updates=False,
        )
    so.save(([x, v], [ys]), folder / "wasteful.pkl")
    so.save(([x, v], [ys, logs]), folder / "inner" / "clean.pkl.gz")
    (folder / "notes.txt").write_text("no graph")
    return folder


def test_findings_of_a_directory(graphs: Path) -> None:
    done = scanopt("check", graphs)
    assert done.code == 1
    shown = " ".join(done.out.split())
    assert "P001 [*] scan_fn (" in shown
    assert re.search(r"test_check\.py:\d+ in graphs", shown)
    assert "nobody reads nit_sot" in shown
    assert "Found 1 finding in 1 of 2 graphs" in shown
    assert "by --fix -o OUT, which runs remove-unused" in shown
    assert "clean.pkl" not in shown
    assert max(map(len, done.out.splitlines())) <= 80


def test_a_clean_graph_is_one_line(graphs: Path) -> None:
    done = scanopt("check", graphs / "inner")
    assert (done.code, done.out) == (0, "nothing found in 1 graph\n")


def test_one_line_for_each_finding(graphs: Path) -> None:
    done = scanopt("check", graphs, "--format", "concise")
    finding, total, fixes = done.out.splitlines()
    assert finding.startswith(f"{graphs / 'wasteful.pkl'}: P001 [*] scan_fn (")
    assert total == "Found 1 finding in 1 of 2 graphs"
    assert fixes.startswith("1 finding marked [*] can be mended by --fix -o OUT")


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--select", "P"], 1),
        (["--select", "R,C"], 0),
        (["--select", "R", "--select", "P001"], 1),
        (["--ignore", "P001"], 0),
        (["--exit-zero"], 0),
        (["--statistics"], 1),
        (["--select", "P", "--ignore", "P001"], 0),
    ],
)
def test_exit_codes(options: list[str], code: int, graphs: Path) -> None:
    assert scanopt("check", graphs, *options).code == code


def test_statistics(graphs: Path) -> None:
    done = scanopt("check", graphs, "--statistics")
    assert re.search(r"1 +P001 +unused-slots", done.out)
    assert "Found 1 finding in 1 of 2 graphs" in done.out


def test_json_has_every_file(graphs: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.pkl"
    bad.write_bytes(b"no pickle")
    done = scanopt("check", graphs, bad, "--format", "json")
    assert done.code == 2
    clean, wasteful, failed = json.loads(done.out)["graphs"]
    assert (clean["findings"], clean["fixes"], clean["known"]) == ([], None, 0)
    (finding,) = wasteful["findings"]
    assert (finding["code"], finding["severity"]) == ("P001", "warning")
    assert finding["fix"] == {"passes": "remove-unused", "is_safe": True}
    assert wasteful["fixes"] == "remove-unused"
    assert (failed["source"], "findings" in failed) == (str(bad), False)
    assert done.err == f"scanopt: error: {failed['error']}\nscanopt: 1 of 3 graphs failed\n"


def test_a_bad_file_stops_no_other(graphs: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.pkl"
    bad.write_bytes(b"no pickle")
    done = scanopt("check", bad, graphs)
    assert done.code == 2
    assert done.err.startswith(f"scanopt: error: {bad}")
    assert "Found 1 finding in 1 of 2 graphs" in done.out


def test_a_bad_file_alone_is_one_line(tmp_path: Path) -> None:
    bad = tmp_path / "bad.pkl"
    bad.write_bytes(b"no pickle")
    done = scanopt("check", bad)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)


def test_annotations_are_at_the_line_that_wrote_the_loop(graphs: Path) -> None:
    done = scanopt("check", graphs, "--format", "github")
    first = done.out.splitlines()[0]
    assert re.match(r"::warning file=[^,]*test_check\.py,line=\d+,title=P001 unused-slots::", first)


def test_sarif(graphs: Path) -> None:
    done = scanopt("check", graphs, "--format", "sarif")
    assert done.code == 1
    log = json.loads(done.out)
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    (result,) = run["results"]
    rule = run["tool"]["driver"]["rules"][result["ruleIndex"]]
    assert rule["id"] == result["ruleId"] == "P001"
    assert result["level"] in ("none", "note", "warning", "error")
    (location,) = result["locations"]
    place = location["physicalLocation"]
    assert place["artifactLocation"]["uri"].endswith("test_check.py")
    assert place["region"]["startLine"] > 1
    (finding,) = so.check(so.load(graphs / "wasteful.pkl")).findings
    assert result["partialFingerprints"] == {"scanopt/v1": finding.key}


def test_markdown(graphs: Path) -> None:
    done = scanopt("check", graphs, "--format", "markdown")
    assert "- `~` warning" in done.out
    assert "P001" in done.out


def test_a_lock_file_is_a_baseline(graphs: Path, tmp_path: Path) -> None:
    graphs = shutil.copytree(graphs, tmp_path / "graphs")
    known = tmp_path / "scanopt.lock"
    assert scanopt("lock", graphs, "-o", known).code == 0
    again = scanopt("check", graphs, "--baseline", known)
    assert (again.code, again.out) == (0, "nothing found in 2 graphs, beside 1 known one\n")
    (tmp_path / "pyproject.toml").write_text("[tool.scanopt.check]\nbaseline = 'scanopt.lock'\n")
    by_settings = scanopt("check", graphs, cwd=tmp_path)
    assert (by_settings.code, by_settings.out) == (again.code, again.out)
    before = known.read_text()
    scanopt("lock", cwd=tmp_path)  # what is known is locked all the same
    assert known.read_text() == before


def test_pyproject_settings(graphs: Path, tmp_path: Path) -> None:
    settings = tmp_path / "pyproject.toml"
    settings.write_text("[tool.scanopt.check]\nignore = ['P001']\n")
    assert scanopt("check", graphs, cwd=tmp_path).code == 0
    assert scanopt("check", graphs, "--ignore", "R", cwd=tmp_path).code == 1
    settings.write_text("[tool.scanopt.check.per-file-ignores]\n'wasteful*' = ['P']\n")
    assert scanopt("check", graphs, cwd=tmp_path).code == 0
    settings.write_text("[tool.scanopt.check]\nbaseline = 'none.json'\n")
    done = scanopt("check", graphs, cwd=tmp_path)
    assert (done.code, done.out) == (2, "")
    assert "none.json" in done.err


def test_fix_writes_what_is_mended(graphs: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    done = scanopt("check", graphs, "--fix", "-o", out)
    assert (done.code, done.out) == (0, "nothing left in 2 graphs; 1 was mended\n")
    assert sorted(path.name for path in out.iterdir()) == ["clean.pkl.gz", "wasteful.pkl"]
    assert scanopt("check", out).code == 0
    before, after = (so.load(folder / "wasteful.pkl") for folder in (graphs, out))
    assert so.verify(before, after).ok


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--fix"], "--fix: needs a place"),
        (["-o", "x.pkl"], "-o: is for --fix"),
        (["--force"], "--force: is for -o"),
        (["--statistics", "--format", "json"], "--statistics: is for rich"),
        (["--select", "X"], "no rule's code begins with 'X'"),
        (["--baseline", "none.json"], "none.json"),
    ],
)
def test_bad_options_are_one_line(options: list[str], message: str, graphs: Path) -> None:
    done = scanopt("check", graphs, *options)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert done.err.count("\n") == 1


def test_a_directory_without_graphs(tmp_path: Path) -> None:
    done = scanopt("check", tmp_path)
    assert (done.code, done.out) == (2, "")
    assert "holds no graph" in done.err


@pytest.mark.parametrize("form", ["rich", "json", "markdown"])
def test_rules_are_listed(form: str) -> None:
    done = scanopt("rules", "--format", form)
    assert done.code == 0
    for code in rules():
        assert code in done.out


@pytest.mark.parametrize("called", ["P001", "unused-slots"])
def test_the_manual_of_a_rule(called: str) -> None:
    done = scanopt("rules", called)
    assert done.code == 0
    assert "remove-unused" in done.out
    assert "ys, logs = scan" in done.out


def test_there_is_no_such_rule() -> None:
    done = scanopt("rules", "P999")
    assert (done.code, done.err.count("\n")) == (2, 1)


def test_in_python(graphs: Path) -> None:
    result: Any = so.check(so.load(graphs / "wasteful.pkl"))
    assert [finding.code for finding in result.findings] == ["P001"]
    assert result.fixes == "remove-unused"
