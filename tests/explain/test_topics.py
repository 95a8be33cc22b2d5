"""The topics of ``scanopt explain``: each is found, linked, and true of what commands print."""

from __future__ import annotations

import re
import shlex
import warnings
from collections.abc import Iterator
from contextlib import chdir
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.configdefaults import config

from build import SAMPLES, write
from scanopt_cli import inspect, optimize
from scanopt_cli.analysis.statistics import COUNTS
from scanopt_cli.explain.topics import PARTS, Topic, topic, topics
from scanopt_cli.ir.slots import SlotKind
from scanopt_cli.pipeline.names import BY_NAME
from scanopt_cli.reports.enabled_report import STAGES
from scanopt_cli.rules.rule_names import NAMES
from support.command_line import scanopt
from support.graph_building import graph_of, scan

ROOT = Path(__file__).parents[2]
_PROMPT = "    $ scanopt "


def test_every_file_is_listed_once() -> None:
    stems = [stem for listed in PARTS.values() for stem in listed]
    found = files("scanopt_cli.explain").joinpath("topics").iterdir()
    assert sorted(stems) == sorted(Path(each.name).stem for each in found)


ASKED = (
    "scan, step, slot, sequence, state, taps, sit_sot, mit_sot, mit_mot, nit_sot, untraced state, "
    "shared state, non_seq, buffer, trace, trimmed scan, carry, length, invariant, pullback, "
    "pushforward, gradient strategies, TracedLoop, Loop, OpFromGraph, digest, sameness, pass, "
    "preset, rule, finding, remark, budget, lock file, verify, right once compiled, capture, mode, "
    "backends, pedigree, node, guard, report, enabled, linking, draw, line, graph file, constant, "
    "index"
)


@pytest.mark.parametrize("name", ASKED.split(", "))
def test_a_topic_is_found_however_it_is_written(name: str) -> None:
    found = topic(name)
    assert found is not None
    for written in (name.upper(), name.replace("_", "-"), name.replace(" ", "_")):
        assert topic(written) is found, written


def test_words_of_reports_and_tables_are_explained() -> None:
    """The kinds of slots, the counts, what is left of loops, and the stages of a compilation."""
    words = {*SlotKind, *COUNTS, "Scan", "TracedLoop", "on numbers"}
    assert {str(word) for word in words if topic(str(word)) is None} == set()
    told = topic("report")
    assert told is not None
    assert all(re.search(rf"^    {stage} ", told.text, re.MULTILINE) for stage in STAGES.values())


def test_plurals() -> None:
    """Endings of plurals, and words that only look like them."""
    for several, one in {
        "passes": "pass",
        "tap": "taps",
        "Buffers": "buffer",
        "carries": "carry",
        "Trimmed Scans": "trimmed Scan",
        "bodies": "step",
        "Strategies": "gradient strategies",
        "Mit-Mots": "mit_mot",
        "sameness": "digest",
        "indices": None,
    }.items():
        found = topic(several)
        assert (None if found is None else found.name) == one


def test_no_name_is_that_of_two_topics() -> None:
    for each in topics():
        for name in (each.name, *each.also):
            assert topic(name) is each, name


@pytest.mark.parametrize("each", topics(), ids=lambda each: each.word)
def test_a_topic_says_enough_and_links_to_what_is_there(each: Topic) -> None:
    assert len(each.summary) >= 12
    assert "\n" not in each.summary
    assert each.see, "no topic stands alone"
    for name in each.see:
        assert topic(name) is not None or name in BY_NAME or name in NAMES, name
    pictures = [line for line in each.text.splitlines() if line.startswith("    ")]
    assert pictures
    # Indented by two on a screen of 80 columns; commands are run at 76.
    assert max(map(len, pictures)) - 4 + 2 <= 80
    for code in re.findall(r"\b[A-Z]\d{3}\b", each.text):
        assert code in NAMES
    for name in re.findall(r"`([a-z]+(?:-[a-z]+)+)(?:\{\S*\})?`", each.text):
        assert name in BY_NAME or name == "buffer-kept", name


def examples(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each command that a topic shows, and the lines that it shows of what it prints."""
    command, lines = "", list[str]()
    for line in text.splitlines():
        if command and not line.startswith(("    ", _PROMPT)) and line:
            yield command, lines
            command, lines = "", []
        if line.startswith(_PROMPT):
            if command:
                yield command, lines
            command, lines = line.removeprefix(_PROMPT), []
        elif command and line.strip():
            lines.append(line[4:])
    if command:
        yield command, lines


def test_examples_are_read_from_topics() -> None:
    text = "    $ scanopt a\n    $ scanopt b\n\n    one\n      two\n\nrest\n    picture"
    assert list(examples(text)) == [("a", []), ("b", ["one", "  two"])]


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sample graphs, whose loops have the lines that wrote them."""
    folder = tmp_path_factory.mktemp("samples")
    with chdir(ROOT), config.change_flags(traceback__limit=8):
        for module in SAMPLES:
            write(import_module(module).build(), folder)
    return folder


SHOWING = [each for each in topics() if any(examples(each.text))]
FINDING = ("check", "diff")
"""Commands that exit with 1 in what is shown."""


def test_most_topics_show_a_command() -> None:
    assert len(SHOWING) >= len(topics()) - 3


@pytest.mark.tiered(every=3)
@pytest.mark.usefixtures("evaluated_here")
@pytest.mark.parametrize("each", SHOWING, ids=lambda each: each.word)
def test_commands_print_what_a_topic_shows(samples: Path, each: Topic) -> None:
    for command, shown in examples(each.text):
        done = scanopt(*shlex.split(command), cwd=samples, COLUMNS="76")
        assert done.code == (1 if command.startswith(FINDING) else 0), done.err
        printed = iter(done.out.splitlines())
        for line in shown:
            assert any(line.rstrip() == found.rstrip() for found in printed), (command, line)


def kinds(*outputs: Any) -> list[str]:
    found = inspect(graph_of(*outputs)).scans
    return [slot.kind for one in found for slot in one.slots]


def test_a_sequence_with_taps_is_several_slots() -> None:
    y = pt.dvector("y")
    diff = scan(lambda now, before: now - before, sequences=[{"input": y, "taps": [0, -1]}])
    assert kinds(diff) == ["seq", "seq", "nit_sot"]


def test_shared_states() -> None:
    """Of an array it is a sit_sot, of a generator an untraced state."""
    total, rng = pytensor.shared(np.float64(1.0)), pytensor.shared(np.random.default_rng(1))
    with warnings.catch_warnings(action="ignore"):
        _, updates = pytensor.scan(lambda: {total: total + 1}, n_steps=3)
        assert kinds(*updates.values()) == ["sit_sot"]
        _, updates = pytensor.scan(
            lambda: {rng: pt.random.normal(rng=rng, return_next_rng=True)[0]}, n_steps=3
        )
        assert kinds(*updates.values()) == ["untraced"]


def test_kinds_of_states() -> None:
    """The rows that a buffer begins with, and what only gradients make."""
    start, x = pt.tensor("start", shape=(2,)), pt.dscalar("x")
    means = scan(
        lambda two, one: two + one, outputs_info=[{"initial": start, "taps": [-2, -1]}], n_steps=5
    )
    (report,) = inspect(graph_of(means)).scans
    assert [(slot.kind, slot.rows) for slot in report.slots] == [("mit_sot", "7")]
    powers = scan(lambda y: y**2, outputs_info=[x], n_steps=5)
    assert kinds(powers) == ["sit_sot"]
    assert "mit_mot" in kinds(pt.grad(powers[-1], x))
    loops = optimize(graph_of(pt.grad(powers[-1], x)), "loop").graph
    assert set(kinds(*loops.outputs)) <= {"state", "constant", "index", "traced"}
