"""A package that adds passes stops nothing but what needs a pass of its that is broken."""

from __future__ import annotations

import json
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import ClassVar

import pytensor.tensor as pt
import pytest

import scanopt_cli as so
from scanopt_cli.environment import STRICT
from scanopt_cli.errors import PassError, PlugInWarning
from scanopt_cli.pipeline import registry as registry_module
from scanopt_cli.pipeline.contract import Pass, PassContext, Rewrite
from scanopt_cli.pipeline.grammar import parse
from scanopt_cli.pipeline.registry import registry
from scanopt_cli.serialization.saving import save
from support.command_line import scanopt
from support.graph_building import graph_of

type Install = Callable[..., None]


@dataclass(frozen=True)
class Quiet(Pass):
    """Rewrite nothing."""

    name: ClassVar[str] = "quiet"
    times: int = 1

    def __post_init__(self) -> None:
        if self.times < 0:
            raise ValueError("once at least")

    def rewrites(self, context: PassContext) -> Iterator[Rewrite]:
        yield from ()


@dataclass(frozen=True)
class Failing(Quiet):
    """Raise an error."""

    name: ClassVar[str] = "failing"

    def rewrites(self, context: PassContext) -> Iterator[Rewrite]:
        yield Rewrite({})
        raise ValueError("no luck\nat all")


@pytest.fixture
def plug_ins(monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install entry points, each given by its name and what it names."""

    def install(**values: str) -> None:
        group = registry_module.ENTRY_POINT_GROUP
        points = tuple(EntryPoint(name, value, group) for name, value in values.items())
        monkeypatch.setattr(registry_module, "entry_points", lambda *, group: points)
        forget()

    def forget() -> None:
        registry_module.registry.cache_clear()
        registry_module.plug_ins.cache_clear()

    yield install
    monkeypatch.undo()
    forget()


BROKEN = {
    "save-mem": (
        "scanopt_cli.passes.of_scans.save_mem.save_mem:SaveMem",
        "pass name 'save-mem' is taken by scanopt_cli.passes.of_scans.save_mem.save_mem.SaveMem",
    ),
    "error": ("scanopt_cli.errors:ScanoptError", "is not a subclass of scanopt's Pass"),
    "gone": ("no_such_module_here:Pass", "cannot be imported (ModuleNotFoundError: No module"),
    "leaving": ("leaving_plug_in:Pass", "cannot be imported (SystemExit: 0)"),
    "twice": (f"{__name__}:Quiet", "pass name 'quiet' is taken by test_plug_ins.Quiet"),
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    x = pt.dvector("x")
    save(graph_of(x.sum() + x.sum()), tmp_path / "a.pkl")
    return tmp_path / "a.pkl"


@pytest.fixture(autouse=True)
def leaving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "leaving_plug_in.py").write_text("raise SystemExit(0)")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "leaving_plug_in", raising=False)
    monkeypatch.delenv(STRICT)


def test_other_packages_add_passes(plug_ins: Install, file: Path) -> None:
    plug_ins(quiet=f"{__name__}:Quiet")
    assert parse("quiet{times=2}") == (Quiet(2),)
    assert re.search(r"^ quiet .* times=1$", scanopt("passes").out, re.MULTILINE)


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_one_is_a_warning(plug_ins: Install, name: str, file: Path) -> None:
    value, reason = BROKEN[name]
    plug_ins(quiet=f"{__name__}:Quiet", **{name: value})
    with pytest.warns(PlugInWarning) as caught:
        assert "quiet" in registry()
    (told,) = (str(warning.message) for warning in caught)
    assert told.startswith(f"the package {value.split('.')[0].split(':')[0]} adds no pass")
    assert reason in told
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        registry()
        so.optimize(graph_of(pt.dvector("x").sum()))
        with so.enabled("default"):
            pass


def test_the_command_line_tells_it_in_a_line(plug_ins: Install, file: Path) -> None:
    for command in (["optimize", file, "-q", "--diff", "none"], ["passes"]):
        plug_ins(gone=BROKEN["gone"][0])
        done = scanopt(*command)
        assert (done.code, done.err.count("\n")) == (0, 1)
        assert done.err.startswith("scanopt: warning: the package no_such_module_here adds no pass")
    plug_ins(gone=BROKEN["gone"][0])
    for command in (["hash", file], ["grad", file, "--no-check", "--stage", "raw"]):
        done = scanopt(*command)
        assert (done.code, done.err) == (0, "")


@pytest.mark.parametrize(
    "command", [["optimize", "a.pkl", "-p", "default,gone"], ["passes", "gone"]]
)
def test_what_needs_it_is_an_error(plug_ins: Install, command: list[str], file: Path) -> None:
    plug_ins(gone=BROKEN["gone"][0])
    done = scanopt(*command, cwd=file.parent)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert "the package no_such_module_here adds no pass 'gone': " in done.err


def test_its_error_is_one_of_the_command(plug_ins: Install, file: Path) -> None:
    """And nothing is written, while an error in a pass of scanopt's own only leaves a loop."""
    plug_ins(failing=f"{__name__}:Failing")
    target = file.with_name("out.pkl")
    done = scanopt("optimize", file, "-p", "merge-equal,failing", "-o", target)
    told = "the pass failing of the package test_plug_ins failed (ValueError: no luck at all)"
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert done.err.startswith(f"scanopt: error: {told}; ")
    how = f"scanopt bisect {file} -p merge-equal,failing --mode plain --repro bug.py"
    assert done.err.endswith(f"a script that shows it: {how}\n")
    assert not target.exists()
    done = scanopt("optimize", file, "-p", "failing", "--format", "json")
    assert done.code == 2
    assert told in json.loads(done.out)["graphs"][0]["error"]


def test_its_error_is_passed_on_in_python(plug_ins: Install) -> None:
    plug_ins(failing=f"{__name__}:Failing")
    graph = graph_of(pt.dvector("x").sum())
    with pytest.raises(PassError, match="of the package test_plug_ins failed") as caught:
        so.optimize(graph, [Failing()])
    assert isinstance(caught.value.__cause__, ValueError)


def test_options_that_it_refuses(plug_ins: Install) -> None:
    plug_ins(quiet=f"{__name__}:Quiet")
    with pytest.raises(PassError, match=r"'quiet' refuses its options \(ValueError: once at least"):
        parse("quiet{times=-1}")
