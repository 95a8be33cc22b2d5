"""``scanopt optimize``."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytensor.tensor as pt
import pytest
from pytensor.tensor.random.type import random_generator_type

from scanopt_cli.analysis.statistics import COUNTS, statistics
from scanopt_cli.serialization.loading import load
from scanopt_cli.serialization.saving import save
from support.command_line import scanopt
from support.graph_building import graph_of, scan
from support.tiers import deep


def _only_graph(text: str) -> Any:
    (graph,) = json.loads(text)["graphs"]
    return graph


def test_shows_a_verdict_the_counts_and_what_each_loop_had(files: Path) -> None:
    done = scanopt("optimize", files / "wasteful.pkl")
    assert (done.code, done.err) == (0, "")
    verdict, _, rest = done.out.partition("\n")
    done_to = "1 Scan: 1 unused slot removed, 1 buffer shortened"
    assert verdict.endswith(f": {done_to}; buffers 16*n+8 → 8*min(1,n)+8 bytes")
    rows = [line.split() for line in rest.splitlines()]
    assert ["nit_sot", "outputs", "1", "0", "-1"] in rows
    assert "unchanged: 1 Scan, 1 sit_sot state" in rest
    assert "changed\n  ~ wasteful: removed unused nit_sot `nit_sot[0]`; keeps 2 rows of" in rest
    assert rest.endswith("-u shows the change; -v all remarks; -o OUT\nwrites it\n")
    assert "after merge-equal" not in done.out
    assert "[id" not in done.out


def test_what_is_left_is_told_and_how_it_is_mended(files: Path) -> None:
    done = scanopt("optimize", files / "grad.pkl")
    assert "; 1 finding left\n" in done.out
    assert "left\n  ~ P007 [*] grad_of_" in done.out
    assert done.out.endswith("-p grad mends 1 finding\n")
    mended = scanopt("optimize", files / "grad.pkl", "-p", "grad")
    assert "P007" not in mended.out


def test_what_to_type_next_can_be_typed(files: Path, tmp_path: Path) -> None:
    target = tmp_path / "cleaned graphs.pkl"
    done = scanopt("optimize", files / "wasteful.pkl", "-o", target, COLUMNS="1000")
    assert f"scanopt verify {files / 'wasteful.pkl'} '{target}'" in done.out


def test_quiet_shows_findings_only(files: Path) -> None:
    done = scanopt("optimize", files / "grad.pkl", "-q")
    assert done.out.startswith(f"{files / 'grad.pkl'}\n  ~ P007 [*] grad_of_")
    assert "nodes" not in done.out
    assert scanopt("optimize", files / "wasteful.pkl", "-q").out == ""


def test_several_files_end_with_the_findings(files: Path) -> None:
    done = scanopt("optimize", files / "grad.pkl", files / "clean.pkl", "--format", "markdown")
    assert done.out.splitlines()[-1] == "Found 1 finding in 1 of 2 graphs"


def test_stat_counts_the_changes_of_loops(files: Path) -> None:
    done = scanopt("optimize", files / "wasteful.pkl", "--stat")
    assert "|" in done.out
    assert "before" not in done.out
    assert "1 Scan: 1 unused slot removed" in done.out


def test_pipe_and_no_color_are_plain_text(files: Path) -> None:
    for environment in ({}, {"NO_COLOR": "1"}, {"COLUMNS": "40"}):
        done = scanopt("optimize", files / "wasteful.pkl", **environment)
        assert "\x1b" not in done.out + done.err


@pytest.mark.parametrize("columns", [80, *deep(60, 200)])
def test_fits_the_width(files: Path, columns: int) -> None:
    done = scanopt("optimize", files / "wasteful.pkl", COLUMNS=str(columns))
    _, *lines = done.out.splitlines()  # the first names the file, however long its path
    assert max(map(len, lines)) <= columns


def test_writes_what_it_shows(files: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.pkl"
    done = scanopt("optimize", files / "wasteful.pkl", "-o", target, "--format", "json", "--verify")
    assert done.code == 0
    told = _only_graph(done.out)
    assert told["source"] == str(files / "wasteful.pkl")
    assert told["changed"] is True
    assert told["verification"]["verdict"] in ("identical", "agrees")
    counted = statistics(load(target).fgraph)
    assert {name: told["after"][name] for name in COUNTS} == {
        name: getattr(counted, name) for name in COUNTS
    }
    assert [run["name"] for run in told["passes"] if run["changed"]] == [
        "merge-equal",
        "remove-unused",
        "guard-last-rows",
        "merge-duplicates",
        "save-mem",
    ]
    again = scanopt("optimize", target, "--check")
    assert again.code == 0
    assert "nothing to clean up" in again.out


def test_check_finds_something_to_clean(files: Path) -> None:
    done = scanopt("optimize", files / "wasteful.pkl", "--check", "--diff", "none")
    assert done.code == 1
    assert "~ P001 [*] wasteful: nobody reads nit_sot `nit_sot[0]`" in done.out
    assert done.out.endswith("findings in 1 of 1 graph\n")
    clean = scanopt("optimize", files / "clean.pkl", "--check")
    assert (clean.code, clean.out.splitlines()[-1]) == (0, "nothing found in 1 graph")


def test_check_has_the_rules_that_the_passes_mend(files: Path) -> None:
    """Which are those of `check` with these codes, as far as the passes are the fix."""

    def codes(*options: str) -> set[str]:
        done = scanopt("optimize", files / "wasteful.pkl", "--check", *options, "--format", "json")
        found = {finding["code"] for finding in _only_graph(done.out)["check"]}
        assert done.code == bool(found)
        return found

    assert codes("-p", "remove-unused") == {"P001"}
    assert codes("-p", "guard-last-rows") == {"C002"}
    assert codes("-p", "merge-scans,remove-unused") == {"P001"}
    assert codes("-p", "mit-mot-to-sit-sot,remove-unused,clean-slices") == {"P001"}
    every = scanopt("check", files / "wasteful.pkl", "--format", "json")
    found = _only_graph(every.out)["findings"]
    assert codes() <= {finding["code"] for finding in found if finding["fix"] is not None}


def test_check_by_passes_that_mend_no_rule_is_an_error(files: Path) -> None:
    done = scanopt("optimize", files / "wasteful.pkl", "--check", "-p", "simplify")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert "--check: no rule is mended by these passes" in done.err


def test_check_finds_nothing_in_what_only_changes(tmp_path: Path) -> None:
    """Equal expressions are merged by whoever compiles, so they are no finding."""
    x = pt.dvector("x")
    save(graph_of(x.sum() + x.sum()), tmp_path / "a.pkl")
    done = scanopt("optimize", tmp_path / "a.pkl", "--check")
    assert (done.code, done.out.splitlines()[-1]) == (0, "nothing found in 1 graph")


def test_check_keeps_to_the_settings_of_check(files: Path, tmp_path: Path) -> None:
    settings = tmp_path / "pyproject.toml"
    command = ("optimize", files / "wasteful.pkl", "--check", "-p", "remove-unused")
    for text, code in (
        ("ignore = ['P001']", 0),
        ("select = ['C']", 0),
        ("per-file-ignores = { 'waste*' = ['P'] }", 0),
        ("select = ['P']", 1),
        ("baseline = 'none.json'", 2),
    ):
        settings.write_text(f"[tool.scanopt.check]\n{text}\n")
        assert scanopt(*command, cwd=tmp_path).code == code


def test_nothing_to_clean_names_the_preset(files: Path) -> None:
    done = scanopt("optimize", files / "clean.pkl", "-p", "default")
    assert "nothing to clean up (preset default)\n" in done.out


def test_a_graph_without_a_loop_has_no_table(tmp_path: Path) -> None:
    x = pt.dvector("x")
    save(graph_of(x.sum()), tmp_path / "a.pkl")
    done = scanopt("optimize", "a.pkl", cwd=tmp_path)
    line = "a.pkl: no loop in this graph; nothing to clean up (preset default)\n"
    assert (done.code, done.out, done.err) == (0, line, "")
    save(graph_of(x.sum() + x.sum()), tmp_path / "b.pkl")
    done = scanopt("optimize", "b.pkl", "-q", "--diff", "none", cwd=tmp_path)
    assert done.out == ""
    done = scanopt("optimize", "b.pkl", cwd=tmp_path)
    assert done.out.startswith("b.pkl: no loop in this graph; nodes 3 → 2\n")


def test_constants_that_are_merged_are_nothing_to_clean(tmp_path: Path) -> None:
    """PyTensor makes a Constant wherever a number is written, and a hash does not count them."""
    rows, x = pt.dvector("v"), pt.dscalar("x")
    states = scan(lambda a, y: pt.tanh(y) * 2 + a, sequences=[rows], outputs_info=[x])
    save(graph_of(states), tmp_path / "tight.pkl")
    done = scanopt("optimize", tmp_path / "tight.pkl", "--check")
    assert (done.code, "nothing to clean up" in done.out) == (0, True)


def test_options_that_would_do_nothing_are_errors(files: Path) -> None:
    done = scanopt("optimize", files / "wasteful.pkl", "--mode", "numba")
    assert (done.code, "--mode: is for --verify" in done.err) == (2, True)


def test_a_file_that_is_given_twice_is_one(files: Path, tmp_path: Path) -> None:
    graph = files / "wasteful.pkl"
    done = scanopt("optimize", graph, graph, "-q", "-o", tmp_path)
    assert done.err.count("wrote") == 1


def test_the_limit_is_told(files: Path) -> None:
    done = scanopt("optimize", files / "wasteful.pkl", "-q", "--limit", "1")
    assert "stopped after 1 rewrite, as --limit says" in done.err


def test_passes_limit_and_times(files: Path) -> None:
    done = scanopt(
        "optimize", files / "wasteful.pkl", "-p", "remove-unused", "--limit", "0", "--time-passes"
    )
    assert done.code == 0
    assert "nothing to clean up" in done.out
    assert "rewrites" in done.err
    assert scanopt("optimize", files / "wasteful.pkl", "-p", "none").out.count("nothing") == 1


def test_times_of_a_verification_are_told_beside_those_of_passes(files: Path) -> None:
    graph = files / "wasteful.pkl"
    how = ("-p", "remove-unused", "--verify", "--mode", "vm")
    done = scanopt("optimize", graph, *how, "--time-passes")
    assert re.search(r"verification: \S+ \w+, of which \S+ \S+ compiling and first", done.err)
    for row in ("a, as it is", "b, as it is", "b, vm"):
        assert row in done.err
    (entry,) = json.loads(scanopt("optimize", graph, *how, "--format", "json").out)["graphs"]
    times = entry["verification"]["times"]
    told = [(one["graph"], one["mode"]) for one in times["compilations"]]
    assert told == [("a", "plain"), ("b", "plain"), ("b", "vm")]
    assert 0 < times["compilations"][0]["compiling"] < times["seconds"]


def test_diff_kinds(files: Path) -> None:
    graph = files / "wasteful.pkl"
    tree = scanopt("optimize", graph, "--diff", "tree", "--lines", "5")
    assert "--lines 0 shows all" in tree.out
    structural = scanopt("optimize", graph, "--diff", "structural")
    assert "rows: n+1 → min(1,n)+1" in structural.out
    assert scanopt("optimize", graph, "-u").out == structural.out
    assert scanopt("optimize", graph, "--patch").out == structural.out
    nothing = scanopt("optimize", graph, "--diff", "none")
    assert nothing.out == scanopt("optimize", graph).out
    assert len(nothing.out) < len(structural.out)


def test_print_changed_goes_to_stderr(files: Path) -> None:
    done = scanopt("optimize", files / "wasteful.pkl", "--print-changed", "--diff", "none")
    assert "after save-mem" in done.err
    assert "after save-mem" not in done.out


def test_print_changed_shows_each_change_once(files: Path) -> None:
    done = scanopt("optimize", files / "wasteful.pkl", "--print-changed")
    assert (done.out + done.err).count("after save-mem") == 1


def test_markdown(files: Path) -> None:
    done = scanopt("optimize", files / "wasteful.pkl", "--format", "markdown")
    assert "| nit\\_sot outputs | 1 | 0 | -1 |" in done.out
    assert "-v" not in done.out


def test_several_files(files: Path, tmp_path: Path) -> None:
    done = scanopt(
        "optimize", files / "wasteful.pkl", files / "clean.pkl", "-o", tmp_path, "--format", "json"
    )
    assert done.code == 0
    assert [item["changed"] for item in json.loads(done.out)["graphs"]] == [True, False]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["clean.pkl", "wasteful.pkl"]


def test_one_bad_file_of_several_is_told_and_the_rest_done(files: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.pkl"
    bad.write_bytes(b"not a pickle")
    done = scanopt("optimize", bad, files / "wasteful.pkl", "--diff", "none")
    assert done.code == 2
    assert done.err.count("scanopt: error:") == 1
    assert "1 unused slot removed" in done.out


@pytest.mark.parametrize(
    "names", [["bad"], ["bad", "wasteful"], ["wasteful", "bad"], ["no", "bad"]]
)
def test_json_has_one_shape_and_holds_the_errors(
    names: list[str], files: Path, tmp_path: Path
) -> None:
    (tmp_path / "bad.pkl").write_bytes(b"not a pickle")
    shutil.copy(files / "wasteful.pkl", tmp_path)
    done = scanopt("optimize", *(f"{name}.pkl" for name in names), "--format", "json", cwd=tmp_path)
    told = json.loads(done.out)
    assert (done.code, told["command"]) == (2, "optimize")
    assert [item["source"] for item in told["graphs"]] == [f"{name}.pkl" for name in names]
    for item in told["graphs"]:
        assert ("error" in item) != ("changed" in item)
    errors = [item["error"] for item in told["graphs"] if "error" in item]
    lines = [line.removeprefix("scanopt: error: ") for line in done.err.splitlines()]
    several = [f"scanopt: {len(errors)} of {len(names)} graphs failed"] if len(names) > 1 else []
    assert lines == [*errors, *several]


def test_verbose_shows_all_remarks_by_pass(files: Path) -> None:
    done = scanopt("optimize", files / "wasteful.pkl", "-v")
    assert "remove-unused\n  ~ wasteful: removed unused nit_sot `nit_sot[0]`\n" in done.out
    assert "merge-equal\n" in done.out


def test_lines_limit_every_kind_of_diff(files: Path) -> None:
    for kind in ("structural", "tree"):
        few = scanopt("optimize", files / "wasteful.pkl", "--diff", kind, "--lines", "1")
        every = scanopt("optimize", files / "wasteful.pkl", "--diff", kind, "--lines", "0")
        assert "--lines 0 shows all" in few.out
        assert "--lines 0" not in every.out
        assert len(few.out.splitlines()) < len(every.out.splitlines())


def test_mistakes(files: Path, tmp_path: Path) -> None:
    graph = files / "wasteful.pkl"
    cases = [
        (["-p", "remove-unusd"], "did you mean remove-unused?"),
        (["-p", ""], "pipeline: is empty"),
        (["-p", "defualt"], "did you mean the preset default?"),
        (["-p", "save-mem{x=1}"], "has no option 'x'"),
        (["-o", tmp_path / "no" / "such" / "dir.pkl"], "no such directory"),
        (["--format", "yaml"], "yaml"),
        (["--limit", "-1"], "limit"),
        (["--nonsense"], "nonsense"),
    ]
    for arguments, told in cases:
        done = scanopt("optimize", graph, *arguments)
        assert (done.code, done.err.count("\n")) == (2, 1), done
        assert done.err.startswith("scanopt: error:")
        assert told in done.err
    several = scanopt("optimize", graph, files / "clean.pkl", "-o", tmp_path / "one.pkl")
    assert (several.code, "need a directory" in several.err) == (2, True)


def test_what_is_no_file_is_not_replaced(files: Path, tmp_path: Path) -> None:
    """A pipe, or a device such as /dev/null."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    done = scanopt("optimize", files / "wasteful.pkl", "-q", "-o", pipe)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "is not a regular file" in done.err
    assert pipe.is_fifo()


def test_input_file_stays_as_it_was(files: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.pkl"
    shutil.copy(files / "wasteful.pkl", copy)
    before = copy.read_bytes()
    assert scanopt("optimize", copy).code == 0
    assert copy.read_bytes() == before


def test_a_file_that_is_named_like_an_option_is_a_file_to_the_hook(files: Path) -> None:
    """Pre-commit appends the names of tracked files, which a pull request may choose."""
    hooks = Path(__file__).parents[2] / ".pre-commit-hooks.yaml"
    lines = [line for line in hooks.read_text().splitlines() if "entry:" in line]
    (entry,) = (line for line in lines if line.endswith(" --"))
    others = [line for line in lines if line != entry]
    assert len(others) == hooks.read_text().count("pass_filenames: false")
    program, *arguments = entry.partition("entry:")[2].split()
    assert program == "scanopt"
    done = scanopt(*arguments, files / "clean.pkl", "-ostolen.pkl")
    assert (done.code, "-ostolen.pkl: no such file" in done.err) == (2, True)


def test_draws_that_are_the_same_in_every_step_are_warned_of(tmp_path: Path) -> None:
    x, rng = pt.dscalar("x"), random_generator_type("rng")
    step = lambda h, rng: h + pt.random.normal(rng=rng)  # noqa: E731
    walk = scan(step, outputs_info=[x], non_sequences=[rng], n_steps=4, name="walk")
    save(graph_of(walk), tmp_path / "walk.pkl")
    text = "every step draws the same numbers from"
    done = scanopt("optimize", tmp_path / "walk.pkl", "--quiet")
    assert done.code == 0
    assert f"walk: {text} `rng`; carry the generator as a state" in " ".join(done.err.split())
    told = json.loads(scanopt("optimize", tmp_path / "walk.pkl", "--format", "json", "-q").out)
    (warning,) = told["graphs"][0]["warnings"]
    assert (warning["code"], warning["kind"], warning["slots"]) == (
        "same-draws",
        "warning",
        ["rng"],
    )
    for form in ("rich", "markdown"):
        shown = scanopt("inspect", tmp_path / "walk.pkl", "--format", form).out
        assert f"warning: walk: {text} rng" in " ".join(shown.split())
