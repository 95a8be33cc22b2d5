"""``scanopt lock`` and ``scanopt status``: what is locked, and what is told to be different."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import jsonschema
import pytest

import scanopt_cli as so
from scanopt_cli.analysis.statistics import COUNTS, statistics
from scanopt_cli.gates.comparing import LIMITED
from scanopt_cli.gates.lock_file import read_lock
from support.command_line import run, scanopt
from support.foreign_ops import Opaque
from support.pages import ROOT
from support.sample_building import samples

SCHEMA = json.loads((ROOT / "docs" / "reference" / "lock.schema.json").read_text())


@pytest.fixture
def folder(files: Path, tmp_path: Path) -> Path:
    """A folder with ``graphs``, which are power, clean, wasteful and off, and with their lock."""
    (tmp_path / "graphs").mkdir()
    for name in ("power", "clean", "wasteful", "off"):
        shutil.copy(files / f"{name}.pkl", tmp_path / "graphs")
    done = scanopt("lock", "graphs", cwd=tmp_path)
    assert (done.code, done.out) == (0, "")
    assert done.err == "scanopt: wrote scanopt.lock: 4 graphs, 4 new; known findings: 6\n"
    return tmp_path


@pytest.fixture
def changed(folder: Path, files: Path) -> Path:
    """The same folder: power is another graph, wasteful is mended, off is gone, grad is new."""
    shutil.copy(files / "grad.pkl", folder / "graphs" / "power.pkl")
    shutil.copy(files / "grad.pkl", folder / "graphs" / "grad.pkl")
    so.save(so.optimize(folder / "graphs" / "wasteful.pkl").graph, folder / "graphs/wasteful.pkl")
    (folder / "graphs" / "off.pkl").unlink()
    return folder


def test_what_is_locked_is_clean(folder: Path) -> None:
    lock = folder / "scanopt.lock"
    jsonschema.validate(json.loads(lock.read_bytes()), SCHEMA)
    before = lock.read_bytes()
    for cwd in (folder, folder / "graphs"):
        done = scanopt("status", cwd=cwd)
        told = "4 graphs: 4 unchanged; none worse than locked\n"
        assert (done.code, done.out, done.err) == (0, told, "")
        again = scanopt("lock", cwd=cwd)
        assert (again.code, "all as before" in again.err) == (0, True)
    assert lock.read_bytes() == before


def test_a_lock_has_what_other_commands_print(folder: Path, files: Path) -> None:
    entry = read_lock(folder / "scanopt.lock").graphs["graphs/wasteful.pkl"]
    graph = so.load(files / "wasteful.pkl")
    assert entry.digest == so.digest(graph)
    counted = statistics(graph.fgraph)
    assert {n: entry.counts.get(n, 0) for n in COUNTS} == {n: getattr(counted, n) for n in COUNTS}
    assert [found.key for found in entry.findings] == [f.key for f in so.check(graph).findings]


def test_what_is_different(changed: Path) -> None:
    done = scanopt("status", cwd=changed)
    assert done.code == 1
    text = " ".join(done.out.split())
    assert "! graphs/power.pkl: changed ! scans 1 → 2" in text
    assert "! graphs/grad.pkl: not locked ! P007" in text
    assert "! graphs/off.pkl: missing" in text
    assert "+ graphs/wasteful.pkl: changed" in text
    assert "- P001 wasteful" in text
    assert "clean" not in text
    assert "5 graphs: 1 unchanged, 2 changed, 1 not locked, 1 missing; 3 worse than locked" in text


def test_only_what_is_asked_for(changed: Path) -> None:
    better = scanopt("status", "graphs/wasteful.pkl", "graphs/clean.pkl", cwd=changed)
    assert (better.code, "`scanopt lock` keeps what is better" in better.out) == (0, True)
    missing = scanopt("status", "graphs/off.pkl", cwd=changed)
    assert (missing.code, missing.out.splitlines()[0]) == (1, "! graphs/off.pkl: missing")
    everything = scanopt("status", "graphs", cwd=changed)
    assert everything.out == scanopt("status", cwd=changed).out
    shutil.rmtree(changed / "graphs")
    for words in (["graphs"], []):
        gone = scanopt("status", *words, cwd=changed)
        assert (gone.code, "4 graphs: 4 missing" in gone.out) == (1, True)


def test_what_is_asked_for_can_be_listed(changed: Path) -> None:
    (changed / "list").write_bytes(b"graphs/wasteful.pkl\0graphs/power.pkl")
    for words in (["status"], ["status", "--format", "json"]):
        listed = scanopt(*words, "--files-from", "list", cwd=changed)
        named = scanopt(*words, "graphs/wasteful.pkl", "graphs/power.pkl", cwd=changed)
        assert listed == named
        assert listed.code == 1
    (changed / "list").write_text("graphs/power.pkl\n")
    done = scanopt("lock", "--files-from", "list", cwd=changed)
    assert done.err.startswith("scanopt: wrote scanopt.lock: 4 graphs, 1 changed")
    removed = scanopt("lock", "--remove", "--files-from", "list", cwd=changed)
    assert removed.err.startswith("scanopt: wrote scanopt.lock: 3 graphs, 1 removed")
    (changed / "list").write_text("graphs/*.pkl\n")  # no pattern
    wrong = scanopt("status", "--files-from", "list", cwd=changed)
    assert (wrong.code, wrong.err.splitlines()[0]) == (
        2,
        "scanopt: error: graphs/*.pkl: no such file; check the path",
    )


def test_locking_again_takes_what_is_there(changed: Path) -> None:
    done = scanopt("lock", "graphs/power.pkl", cwd=changed)
    assert done.err == "scanopt: wrote scanopt.lock: 4 graphs, 1 changed; known findings: 7\n"
    whole = scanopt("lock", cwd=changed)
    told = "4 graphs, 1 new, 1 changed, 1 removed; known findings: 2"
    assert whole.err == f"scanopt: wrote scanopt.lock: {told}\n"
    assert scanopt("status", cwd=changed).code == 0


def test_graphs_leave_the_lock_file_if_they_are_named(folder: Path) -> None:
    done = scanopt("lock", "--remove", "graphs/off.pkl", cwd=folder)
    assert done.err == "scanopt: wrote scanopt.lock: 3 graphs, 1 removed; known findings: 3\n"
    status = scanopt("status", cwd=folder)
    assert (status.code, "graphs/off.pkl: not locked" in status.out) == (1, True)
    scanopt("lock", "--remove", "graphs", cwd=folder)
    assert read_lock(folder / "scanopt.lock").graphs == {}
    empty = scanopt("status", cwd=folder)
    assert (empty.code, "holds no graph to compare" in empty.err) == (2, True)


def test_another_form_is_the_same_graph(folder: Path) -> None:
    power = folder / "graphs" / "power.pkl"
    assert scanopt("convert", power, folder / "power.scanopt").code == 0
    (folder / "power.scanopt").rename(power)
    done = scanopt("status", cwd=folder)
    assert done.code == 0
    assert "~ graphs/power.pkl: changed in form only" in done.out


def test_budgets(changed: Path) -> None:
    power = "graphs/power.pkl"
    shutil.copy(changed / "scanopt.lock", changed / "before.lock")
    over = scanopt("lock", power, "--budget", "scans=1", cwd=changed)
    assert over.code == 1
    assert "over budget: graphs/power.pkl: scans 2, the budget is 1" in over.err
    assert "scans 2, the budget is 1" in scanopt("status", power, cwd=changed).out
    assert scanopt("lock", power, cwd=changed).code == 1  # it stays
    assert scanopt("lock", power, "--budget", "none", cwd=changed).code == 0
    shutil.copy(changed / "before.lock", changed / "scanopt.lock")
    (changed / "pyproject.toml").write_text("[tool.scanopt.budget]\nmit_mot = 0\n")
    assert "mit_mot 0 → 1, " not in scanopt("status", "graphs/clean.pkl", cwd=changed).out
    scanopt("lock", power, cwd=changed)
    assert "mit_mot 1, the budget is 0" in scanopt("status", power, cwd=changed).out


def test_a_budget_allows_more_than_is_locked(folder: Path, files: Path) -> None:
    roomy = "scans=2,outer=99,inner=99,buffer_bytes=999999"
    assert scanopt("lock", "graphs/clean.pkl", "--budget", roomy, cwd=folder).code == 0
    shutil.copy(files / "power.pkl", folder / "graphs" / "clean.pkl")
    done = scanopt("status", "graphs/clean.pkl", cwd=folder)
    assert (done.code, "clean.pkl: changed" in done.out) == (0, True)


def test_rules_are_those_of_the_settings(folder: Path) -> None:
    (folder / "pyproject.toml").write_text("[tool.scanopt.check]\nignore = ['P', 'C']\n")
    scanopt("lock", cwd=folder)
    assert not read_lock(folder / "scanopt.lock").graphs["graphs/wasteful.pkl"].findings


def test_json(changed: Path) -> None:
    (changed / "graphs" / "clean.pkl").write_bytes(b"no graph")
    done = scanopt("status", "--format", "json", cwd=changed)
    assert done.code == 2
    told = json.loads(done.out)
    assert (told["command"], told["lock"]) == ("status", "scanopt.lock")
    entries = {Path(entry["source"]).stem: entry for entry in told["graphs"]}
    assert {name: entry.get("state") for name, entry in entries.items()} == {
        "power": "changed",
        "grad": "new",
        "off": "missing",
        "wasteful": "changed",
        "clean": None,
    }
    assert [entry["rule"] for entry in entries["wasteful"]["gone"]] == ["C002", "P001", "P006"]
    assert entries["grad"]["found"][0]["text"]
    assert (entries["power"]["worse"], entries["wasteful"]["worse"]) == (True, False)


def test_annotations_and_the_summary(changed: Path, tmp_path: Path) -> None:
    summary = tmp_path / "summary.md"
    done = scanopt("status", "--format", "github", cwd=changed, GITHUB_STEP_SUMMARY=str(summary))
    assert done.code == 1
    assert "::error file=graphs/off.pkl,title=missing graph::" in done.out
    assert "::error file=graphs/power.pkl,title=more than locked::scans 1 → 2" in done.out
    assert done.out.count("::error") <= 10
    assert "5 graphs" in summary.read_text(encoding="utf-8")


def test_what_cannot_be_compared_by_value_is_changed_if_its_bytes_are(tmp_path: Path) -> None:
    import cloudpickle
    import pytensor.tensor as pt

    x = pt.dvector("x")
    path = tmp_path / "opaque.pkl"
    path.write_bytes(cloudpickle.dumps(([x], [Opaque(lambda value: value)(x)])))
    assert scanopt("lock", path, "--trust", cwd=tmp_path).code == 0
    assert read_lock(tmp_path / "scanopt.lock").graphs["opaque.pkl"].digest is None
    assert scanopt("status", cwd=tmp_path).code == 0  # unchanged files are not loaded
    path.write_bytes(cloudpickle.dumps(([x], [Opaque(lambda value: 2 * value)(x)])))
    assert "opaque.pkl: changed\n" in scanopt("status", "--trust", cwd=tmp_path).out


def test_unchanged_graphs_import_no_pytensor(folder: Path) -> None:
    code = (
        "import sys; from scanopt_cli.cli.app import run; code = run(['status']); "
        "print(code, 'pytensor' in sys.modules)"
    )

    done = run([sys.executable, "-c", code], folder, {"PYTHONPATH": str(ROOT)})
    assert done.out.splitlines()[-1] == "0 False"


def test_other_versions_are_told(folder: Path) -> None:
    lock = folder / "scanopt.lock"
    lock.write_text(lock.read_text().replace('"by": "scanopt ', '"by": "scanopt 0.0.'))
    done = scanopt("status", cwd=folder)
    assert (done.code, "looks at it again" in done.err) == (0, True)


def test_nothing_is_written_if_a_graph_fails(folder: Path) -> None:
    (folder / "graphs" / "bad.pkl").write_bytes(b"no graph")
    before = (folder / "scanopt.lock").read_bytes()
    done = scanopt("lock", cwd=folder)
    assert (done.code, done.out) == (2, "")
    assert "wrote nothing" in done.err
    assert (folder / "scanopt.lock").read_bytes() == before
    alone = scanopt("lock", "graphs/bad.pkl", "-o", "new.lock", cwd=folder)
    assert (alone.code, alone.err.count("\n")) == (2, 1)
    assert not (folder / "new.lock").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["lock", "-o", "none.lock"], "holds no graphs to lock again"),
        (["lock", "graphs", "-o", "graphs"], "is a directory"),
        (["lock", "graphs", "-o", "none/a.lock"], "there is no such directory"),
        (["lock", "graphs", "-o", "graphs/power.pkl"], "is no lock file"),
        (["lock", "graphs", "--budget", "ovens=1"], "there is no count"),
        (["lock", "--remove"], "is for graphs that are named"),
        (["lock", "--remove", "graphs/none.pkl"], "is not locked"),
        (["lock", "graphs/none.pkl"], "no such file"),
        (["lock", "/"], "where the lock file is"),
        (["status", "--lock", "none.lock"], "no such file"),
        (["status", "--lock", "graphs/power.pkl"], "is no lock file"),
        (["status", "graphs/none.pkl"], "no such file"),
        (["status", "/"], "where the lock file is"),
    ],
)
def test_bad_options_are_one_line(words: list[str], message: str, folder: Path) -> None:
    before = (folder / "scanopt.lock").read_bytes()
    done = scanopt(*words, cwd=folder)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert message in done.err
    assert (folder / "scanopt.lock").read_bytes() == before


def test_without_a_lock_file(tmp_path: Path) -> None:
    done = scanopt("status", cwd=tmp_path)
    assert (done.code, done.out) == (2, "")
    assert "there is no lock file here or above" in done.err


def test_a_hostile_lock_file_reads_no_other_file(folder: Path, tmp_path: Path) -> None:
    lock = folder / "scanopt.lock"
    lock.write_text(lock.read_text().replace("graphs/off.pkl", "graphs/../../off.pkl"))
    done = scanopt("status", cwd=folder)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert "is no path inside" in done.err


@pytest.mark.tiered(every=3)
@pytest.mark.parametrize("name", samples())
def test_samples(name: str, tmp_path: Path) -> None:
    """Locked, they are clean; rewritten, status tells the counts and findings that differ."""
    path = tmp_path / "graph.scanopt"
    before = samples()[name]
    so.save(before, path)
    assert scanopt("lock", path, cwd=tmp_path).code == 0
    assert scanopt("status", cwd=tmp_path).code == 0
    after = so.optimize(before).graph
    so.save(after, path)
    (entry,) = json.loads(scanopt("status", "--format", "json", cwd=tmp_path).out)["graphs"]
    assert (entry["state"] == "changed") == (so.digest(before) != so.digest(after))
    counts = [statistics(so.load(path).fgraph), statistics(before.fgraph)]
    now, locked = ({n: getattr(each, n) for n in COUNTS} for each in counts)
    told = {c["count"]: c for c in entry["counts"] if c["count"] != "buffer_bytes"}
    assert {n: (c["locked"], c["now"]) for n, c in told.items()} == {
        n: (locked[n], now[n]) for n in COUNTS if locked[n] != now[n]
    }
    known, found = ({f.key for f in so.check(graph).findings} for graph in (before, after))
    assert {f["key"] for f in entry["found"]} <= found - known
    assert {f["key"] for f in entry["gone"]} <= known - found
    more, less = ({(f["rule"], f["loop"]) for f in entry[part]} for part in ("found", "gone"))
    assert not more & less
    is_more = any(c["now"] > c["locked"] for c in entry["counts"] if c["count"] in LIMITED)
    assert entry["worse"] == (is_more or bool(entry["found"]))


def test_many_changes_fit_a_screen(files: Path, tmp_path: Path) -> None:
    (tmp_path / "graphs").mkdir()
    for number in range(30):
        shutil.copy(files / "clean.pkl", tmp_path / "graphs" / f"{number:02}.pkl")
    scanopt("lock", "graphs", cwd=tmp_path)
    for number in range(30):
        (tmp_path / "graphs" / f"{number:02}.pkl").unlink()
    done = scanopt("status", cwd=tmp_path)
    assert "… 10 more graphs are different; --format json has all" in done.out
    assert len(done.out.splitlines()) < 30
    assert len(scanopt("status", "--format", "markdown", cwd=tmp_path).out.splitlines()) > 30
