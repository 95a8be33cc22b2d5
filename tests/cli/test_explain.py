"""``scanopt explain``: topics, manuals of passes and rules, remarks, and what is not found."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from typing import Any, ClassVar

import pytest

from scanopt_cli.cli import explain as explain_module
from scanopt_cli.explain.topics import Topic, topics
from scanopt_cli.pipeline.names import BY_NAME
from scanopt_cli.remarks import Code, Why
from scanopt_cli.reports.remark_manual import remark_manual
from scanopt_cli.rules.check_context import CheckContext
from scanopt_cli.rules.rule_contract import Finding, Rule, Severity
from support.command_line import process, scanopt


@pytest.mark.parametrize("columns", ["40", "80", "200"])
def test_all_topics_are_listed(columns: str) -> None:
    done = scanopt("explain", COLUMNS=columns)
    assert (done.code, done.err) == (0, "")
    assert all(topic.name in done.out for topic in topics())
    assert max(map(len, done.out.splitlines())) <= int(columns)


@pytest.mark.parametrize("topic", topics(), ids=lambda topic: topic.word)
def test_a_topic_fits_the_screen_whole(topic: Topic) -> None:
    done = scanopt("explain", topic.name, COLUMNS="80")
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0] == topic.name
    assert max(map(len, lines)) <= 80
    assert "\x1b" not in done.out
    # Pictures are as they are written, but for their indentation.
    for line in topic.text.splitlines():
        if line.startswith("    "):
            assert f"  {line[4:]}".rstrip() in lines


def test_other_formats() -> None:
    told = json.loads(scanopt("explain", "taps", "--format", "json").out)
    assert [each["name"] for each in told["topics"]] == ["taps"]
    assert len(json.loads(scanopt("explain", "--format", "json").out)["topics"]) == len(topics())
    marked = scanopt("explain", "taps", "--format", "markdown").out
    assert "`inspect` writes them" in marked
    assert "    tap -2, read" in marked


def test_words_need_no_quotes() -> None:
    assert scanopt("explain", "untraced", "state").out == scanopt("explain", "UNTRACED-STATES").out


@pytest.mark.parametrize(
    ("asked", "manual"),
    [
        ("save-mem", ("passes", "save-mem")),
        ("Save_Mem", ("passes", "save-mem")),
        ("grad", ("passes", "grad")),
        ("P001", ("rules", "P001")),
        ("p001", ("rules", "P001")),
        ("unused-slots", ("rules", "P001")),
    ],
)
def test_a_pass_or_rule_is_its_manual(asked: str, manual: tuple[str, str]) -> None:
    done = scanopt("explain", asked)
    assert (done.code, done.out) == (0, scanopt(*manual).out)


class Mine(Rule):
    """What another package looks for."""

    code: ClassVar[str] = "ZZ001"
    name: ClassVar[str] = "mine"
    severity: ClassVar[Severity] = Severity.NOTE

    def find(self, context: CheckContext) -> Iterator[Finding]:
        yield from ()


def test_a_rule_of_another_package(monkeypatch: pytest.MonkeyPatch, registered_rules: Any) -> None:
    value = f"{__name__}:Mine"
    registered_rules(value)
    points = (EntryPoint("mine", value, "scanopt.rules"),)
    monkeypatch.setattr(explain_module, "entry_points", lambda group: points)
    shown = scanopt("explain", "zz001")
    assert (shown.code, shown.out) == (0, scanopt("rules", "ZZ001").out)
    assert "What another package looks for." in shown.out


def test_a_remark() -> None:
    done = scanopt("explain", "buffer-kept")
    assert done.code == 0
    assert done.out.startswith("buffer-kept: a remark of carry-reductions and save-mem\n")
    assert "keeps all steps of …: …" in done.out
    reason = scanopt("explain", "shape-unknown").out
    assert "what to do: if no axis is longer than about 8, give it a static shape" in reason
    told = json.loads(scanopt("explain", "buffer-kept", "--format", "json").out)
    assert told["remarks"][0]["passes"] == ["carry-reductions", "save-mem"]


def test_all_remarks_have_a_manual() -> None:
    """Each code of a pass's is in a group that names passes, but those that any pass leaves."""
    without = {code for code in Code if not remark_manual(code).passes}
    assert without == {
        *(Code.PASS_FAILED, Code.PASSES_CYCLE, Code.NOTE, Code.LOOP_LEFT, Code.GRAPH_LEFT),
        *(Code.BODY_LEFT, Code.OPS_BY_IDENTITY, Code.OPS_BY_STATE, Code.SAME_DRAWS),
    }
    assert {name for code in Code for name in remark_manual(code).passes} <= set(BY_NAME)
    for code in (*Code, *Why):
        assert "{" not in remark_manual(code).text


@pytest.mark.parametrize(
    ("asked", "nearest"),
    [
        ("mit_mott", "mit_mot"),
        ("safe-mem", "save-mem"),
        ("openfromgraph", "OpFromGraph"),
        ("P01", "P010"),
        ("bufer-kept", "buffer-kept"),
    ],
)
def test_the_nearest_of_what_is_not_there(asked: str, nearest: str) -> None:
    done = scanopt("explain", asked)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert f"there is no topic '{asked}'; did you mean {nearest}?" in done.err


def test_nothing_is_near() -> None:
    done = scanopt("explain", "qqqqqqq")
    assert done.code == 2
    assert "did you mean" not in done.err
    assert "`scanopt explain` lists the topics" in done.err


def test_topics_need_no_pytensor_and_little_time() -> None:
    code = (
        "import sys; from scanopt_cli.cli.app import run;"
        "run(['explain', 'mit_mot']);"
        "sys.exit('pytensor' in sys.modules or 'numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0
    assert seconds("explain", "mit_mot") < seconds("passes", "save-mem") * 0.7


def seconds(*arguments: str) -> float:
    """Return the processor time of a command, the least of three."""
    import resource

    def spent() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    found = []
    for _ in range(3):
        before = spent()
        assert process(*arguments).code == 0
        found.append(spent() - before)
    return min(found)
