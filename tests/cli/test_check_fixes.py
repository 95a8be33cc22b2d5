"""``scanopt check``: fixes that are safe or not, what they change, and what is left or unsure."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

import scanopt_cli as so
from scanopt_cli.remarks import Code, Remark
from scanopt_cli.rules.mending import mend
from scanopt_cli.rules.rule_contract import Fix, PassRule, Severity
from support.command_line import scanopt
from support.graph_building import scan


class Doubled(PassRule):
    """A sequence is given twice, which a fix that is called unsafe mends."""

    code: ClassVar[str] = "X001"
    name: ClassVar[str] = "doubled"
    severity: ClassVar[Severity] = Severity.WARNING
    fix: ClassVar[Fix] = Fix("merge-duplicates", is_safe=False)
    codes: ClassVar[frozenset[str]] = frozenset({Code.SLOTS_MERGED})

    def text(self, remarks: Sequence[Remark]) -> str:
        return "a sequence is given twice"


@pytest.fixture
def unsafe(registered_rules: Callable[..., None]) -> None:
    """Let a package add a rule with an unsafe fix."""
    registered_rules(f"{__name__}:Doubled")


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph with an output that nobody reads, and a sequence that is given twice."""
    x, v = pt.dvector("x"), pt.dscalar("v")
    ys, _ = scan(
        lambda a, b, s: [pt.sin(s * a) + b, pt.log(a)],
        sequences=[x, x],
        outputs_info=[v, None],
    )
    path = tmp_path_factory.mktemp("fixes") / "graph.pkl"
    so.save(([x, v], [ys]), path)
    return path


ONLY = ("--select", "P001,X001")


@pytest.mark.usefixtures("unsafe")
def test_unsafe_fixes_are_marked_and_counted(graph: Path) -> None:
    done = scanopt("check", graph, *ONLY)
    shown = " ".join(done.out.split())
    assert done.code == 1
    assert "P001 [*] scan_fn" in shown
    assert "X001 [!] scan_fn" in shown
    assert done.out.splitlines()[-1].startswith("1 more marked [!] can be mended by --unsafe-fixes")
    lone = scanopt("check", graph, "--select", "X001")
    assert lone.out.splitlines()[-1].startswith("1 finding marked [!] can be mended by --unsafe-fi")


@pytest.mark.usefixtures("unsafe")
def test_unsafe_fixes_alone_show_what_there_is(graph: Path) -> None:
    before = sorted(graph.parent.iterdir())
    done = scanopt("check", graph, *ONLY, "--unsafe-fixes")
    shown = " ".join(done.out.split())
    assert done.code == 1
    assert "2 findings marked [*] or [!] can be mended by --fix --unsafe-fixes -o OUT" in shown
    assert "which runs remove-unused,merge-duplicates" in shown
    assert sorted(graph.parent.iterdir()) == before


@pytest.mark.usefixtures("unsafe")
@pytest.mark.parametrize("is_unsafe", [False, True])
def test_what_is_left_after_a_fix_is_told(is_unsafe: bool, graph: Path, tmp_path: Path) -> None:
    target = tmp_path / "mended.pkl"
    more = ["--unsafe-fixes"] if is_unsafe else []
    done = scanopt("check", graph, *ONLY, "--fix", *more, "-o", target)
    assert "P001" not in done.out
    if is_unsafe:
        assert (done.code, done.out) == (0, "nothing left in 1 graph; 2 were mended\n")
    else:
        assert done.code == 1
        assert "X001 [!] scan_fn" in done.out
        assert "1 finding left in 1 of 1 graph; 1 was mended" in done.out
        assert "1 finding marked [!] can be mended by --unsafe-fixes" in done.out
    again = scanopt("check", target, *ONLY)
    assert again.code == (0 if is_unsafe else 1)
    assert so.verify(so.load(graph), so.load(target)).ok


@pytest.mark.usefixtures("unsafe")
def test_diff_shows_what_a_fix_changes_and_writes_nothing(graph: Path, tmp_path: Path) -> None:
    before = sorted(graph.parent.iterdir())
    done = scanopt("check", graph, *ONLY, "--diff")
    assert done.code == 1
    assert "~ changed Scan `scan_fn`" in done.out
    assert "  - nit_sot `nit_sot[0]`" in done.out
    assert "X001 [!] scan_fn" in done.out
    assert "1 would be mended" in done.out
    assert sorted(graph.parent.iterdir()) == before
    written = scanopt("check", graph, *ONLY, "--diff", "-o", tmp_path / "mended.pkl")
    assert "1 was mended" in written.out
    compared = scanopt("diff", graph, tmp_path / "mended.pkl", "--lines", 0)
    lines = [line for line in compared.out.splitlines() if line.strip()]
    assert [line for line in written.out.splitlines() if line.strip()][1 : 1 + len(lines)] == lines


def test_diff_of_what_needs_no_fix_is_empty_and_clean(graph: Path) -> None:
    done = scanopt("check", graph, "--select", "R", "--diff")
    assert (done.code, done.out) == (0, "nothing left in 1 graph; 0 would be mended\n")


def test_a_diff_of_what_is_all_mended_is_a_finding(graph: Path) -> None:
    assert scanopt("check", graph, "--select", "P001", "--diff").code == 1
    assert scanopt("check", graph, "--select", "P001", "--diff", "--exit-zero").code == 0


@pytest.mark.usefixtures("unsafe")
def test_json_says_what_is_mended(graph: Path) -> None:
    done = scanopt("check", graph, *ONLY, "--format", "json")
    (entry,) = json.loads(done.out)["graphs"]
    assert (entry["fixes"], entry["unsafe_fixes"]) == (
        "remove-unused",
        "remove-unused,merge-duplicates",
    )
    assert [finding["fix"]["is_safe"] for finding in entry["findings"]] == [True, False]
    assert "mended" not in entry
    done = scanopt("check", graph, *ONLY, "--format", "json", "--diff")
    (entry,) = json.loads(done.out)["graphs"]
    assert (entry["mended"], entry["passes"]) == (1, "remove-unused")
    assert [finding["code"] for finding in entry["findings"]] == ["X001"]
    assert [change["kind"] for change in entry["diff"]["changes"]] == ["removed"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--diff", "--format", "github"], "--diff: is for rich, markdown, json and jsonl"),
        (["--diff", "--statistics"], "--diff: is not for --statistics"),
        (["--fix", "--unsafe-fixes"], "--fix: needs a place"),
        (["--unsafe-fixes", "-o", "x.pkl"], "-o: is for --fix"),
    ],
)
def test_bad_options_are_one_line(options: list[str], message: str, graph: Path) -> None:
    done = scanopt("check", graph, *options)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert message in done.err


def test_what_is_known_stays_known_when_its_loop_is_mended(graph: Path) -> None:
    """Its key is another one then, since the loop computes something else."""
    both = {"select": ("P001", "P006")}
    found = so.check(so.load(graph), **both)
    assert [finding.code for finding in found.findings] == ["P001", "P006"]
    known = {found.findings[1].key: 1}
    done = mend(so.load(graph), select=("P001",), baseline=known)
    assert (done.mended.passes, done.mended.count) == ("remove-unused", 1)
    kept = mend(so.load(graph), **both, baseline={found.findings[0].key: 1})
    assert (kept.mended.count, kept.left.findings, kept.left.known) == (1, (), 1)


def test_what_a_fix_uncovers_is_mended_as_well() -> None:
    """Once its gradient reads no trace, PyTensor trims the loop, and loses the IndexError."""
    start, steps = pt.dvector("start"), pt.lscalar("n")
    taps = {"initial": start, "taps": [-3, -1]}
    last = scan(lambda _, y: y, outputs_info=[taps], n_steps=steps)[-1]
    graph = ([start, steps], [last, pt.grad(last, start)])
    assert [finding.code for finding in so.check(graph).findings] == ["P007"]
    done = mend(graph)
    assert (done.left.findings, done.mended.count) == ((), 1)
    assert "guard-last-rows" in (done.mended.passes or "")


def test_a_fix_that_cannot_be_written_stops_no_other(graph: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.pkl"
    bad.write_bytes(b"no pickle")
    out = tmp_path / "out"
    out.mkdir()
    done = scanopt("check", bad, graph, "--fix", "-o", out)
    assert done.code == 2
    assert [path.name for path in out.iterdir()] == ["graph.pkl"]
    assert "left in 1" in done.out


@pytest.fixture(scope="module")
def doubtful(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A loop that draws from a generator which the caller gives, and whose end is dropped."""
    rng = pt.random.rng("rng")
    _, draws = scan(
        lambda rng: pt.random.normal(rng=rng, return_next_rng=True),
        outputs_info=[rng, None],
        n_steps=3,
    )
    path = tmp_path_factory.mktemp("doubtful") / "doubtful.pkl"
    so.save(([rng], [draws]), path)
    return path


def test_what_is_not_proved_is_told_with_v_alone(doubtful: Path) -> None:
    quiet = scanopt("check", doubtful)
    assert (quiet.code, quiet.out) == (0, "nothing found in 1 graph\n")
    done = scanopt("check", doubtful, "-v")
    assert done.code == 0
    shown = " ".join(done.out.split())
    assert "nothing found in 1 graph; not sure of 1" in shown
    assert ". R003 scan_fn" in shown
    assert "if they are given the same generator" in shown


@pytest.mark.parametrize("form", ["concise", "github", "markdown"])
def test_every_format_says_that_it_is_not_sure(form: str, doubtful: Path) -> None:
    done = scanopt("check", doubtful, "-v", "--format", form)
    assert done.code == 0
    (line,) = (line for line in done.out.splitlines() if "R003" in line)
    assert "not sure" in line
    assert "R003" not in scanopt("check", doubtful, "--format", form).out


def test_json_and_python_have_suspects_apart(doubtful: Path) -> None:
    (entry,) = json.loads(scanopt("check", doubtful, "-v", "--format", "json").out)["graphs"]
    assert entry["findings"] == []
    (suspect,) = entry["suspects"]
    assert (suspect["code"], suspect["fix"]) == ("R003", None)
    (entry,) = json.loads(scanopt("check", doubtful, "--format", "json").out)["graphs"]
    assert entry["suspects"] == []
    result = so.check(so.load(doubtful), suspects=True)
    assert [finding.code for finding in result.suspects] == ["R003"]


def test_a_generator_is_carried_by_the_unsafe_fix_alone(tmp_path: Path) -> None:
    rng = pt.random.rng("rng")
    draws = scan(
        lambda rng: pt.random.normal(rng=rng, return_next_rng=True)[1],
        non_sequences=[rng],
        n_steps=3,
    )
    so.save(([rng], [draws]), tmp_path / "equal.pkl")
    target = tmp_path / "apart.pkl"
    done = scanopt("check", tmp_path / "equal.pkl", "--fix", "-o", target)
    assert done.code == 1
    assert "! R001 [!] scan_fn" in done.out
    assert so.digest(so.load(target)) == so.digest(so.load(tmp_path / "equal.pkl"))
    done = scanopt("check", tmp_path / "equal.pkl", "--fix", "--unsafe-fixes", "-o", target)
    assert (done.code, done.out) == (0, "nothing left in 1 graph; 1 was mended\n")
    found = so.load(target)
    (values,) = pytensor.function(found.inputs, found.outputs)(np.random.default_rng(1))
    np.testing.assert_array_equal(values, np.random.default_rng(1).normal(size=3))
