"""Codes are selected by what they begin with; pyproject.toml says what is left out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from scanopt_cli.errors import PlugInWarning, ScanoptError
from scanopt_cli.pipeline.grammar import parse
from scanopt_cli.rules.equal_draws import EqualDraws
from scanopt_cli.rules.graph_checking import check
from scanopt_cli.rules.rule_contract import Fix
from scanopt_cli.rules.rule_registry import mended_by, rules, selected
from scanopt_cli.rules.settings import (
    Settings,
    settings_from_pyproject,
)
from support.seeded_graphs import SEEDED, unused


def codes(select: tuple[str, ...] = (), ignore: tuple[str, ...] = ()) -> set[str]:
    return {rule.code for rule in selected(select, ignore)}


def test_prefixes() -> None:
    every = set(rules())
    every_default = {code for code, rule in rules().items() if rule.is_default}
    assert every - every_default == {"J001"}
    assert codes() == every_default
    assert codes(("J", "P")) == {code for code in every if code[0] in "JP"}
    assert codes(("P",)) == {code for code in every if code.startswith("P")}
    assert codes((), ("P",)) == every_default - codes(("P",))
    assert codes(("P",), ("P001",)) == codes(("P",)) - {"P001"}
    assert codes(("P001",), ("P",)) == {"P001"}
    assert codes(("R", "P006")) == codes(("R",)) | {"P006"}


@pytest.mark.parametrize("prefix", ["X", "P9", "", "p001"])
def test_a_prefix_of_no_rule_is_refused(prefix: str) -> None:
    with pytest.raises(ScanoptError, match="no rule"):
        selected((prefix,))
    with pytest.raises(ScanoptError, match="no rule"):
        selected((), (prefix,))


def written(folder: Path, text: str) -> Path:
    (folder / "pyproject.toml").write_text(text)
    inside = folder / "a" / "b"
    inside.mkdir(parents=True)
    return inside


def test_settings(tmp_path: Path) -> None:
    inside = written(
        tmp_path,
        """
        [tool.scanopt.check]
        select = ["P", "R"]
        ignore = ["P004"]
        baseline = "known.json"
        per-file-ignores = { "old_*.pkl" = ["P"], "graphs/*" = ["R001"] }
        """,
    )
    found = settings_from_pyproject(inside)
    assert (found.select, found.ignore) == (("P", "R"), ("P004",))
    assert found.baseline == tmp_path / "known.json"
    assert found.ignored_in(Path("graphs/old_one.pkl")) == ("P", "R001")
    assert found.ignored_in(Path("elsewhere/new.pkl")) == ()


@pytest.mark.parametrize(
    "text", ["", "[tool.scanopt.budget]\nscans = 2", "[tool.other]\nselect = 3"]
)
def test_no_settings(text: str, tmp_path: Path) -> None:
    assert settings_from_pyproject(written(tmp_path, text)) == Settings()


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("select = 'P'", "select is no list"),
        ("ignore = [1]", "ignore is no list"),
        ("per-file-ignores = ['P']", "per-file-ignores is no table"),
        ("per-file-ignores = { a = 'P' }", "per-file-ignores is no list"),
        ("baseline = 3", "baseline is no path"),
        ("selects = ['P']", "no entry 'selects'"),
        ("select =", "cannot be read"),
    ],
)
def test_bad_settings_are_one_line(entry: str, message: str, tmp_path: Path) -> None:
    inside = written(tmp_path, f"[tool.scanopt.check]\n{entry}\n")
    with pytest.raises(ScanoptError, match=message) as caught:
        settings_from_pyproject(inside)
    assert "pyproject.toml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_one_more_of_the_same_is_told() -> None:
    graph = unused(read=False)
    first, *others = check(graph).findings
    assert check(graph, baseline={first.key: 0}).findings == (first, *others)
    assert check(graph, baseline={first.key: 1}).findings == tuple(others)


@pytest.mark.tiered(every=9)
@pytest.mark.parametrize("name", SEEDED)
def test_keys_are_the_same_each_time(name: str) -> None:
    _, seeded, _ = SEEDED[name]
    kinds = {code[0] for code in rules()}
    one, other = (tuple(f.key for f in check(seeded(), select=[*kinds]).findings) for _ in range(2))
    assert one == other


class OfAPackage(EqualDraws):
    """What a package looks for."""

    code = "X001"
    name = "of-a-package"


class Taken(EqualDraws):
    """A rule with a code that there is already."""


def test_a_package_adds_a_rule(registered_rules: Callable[..., None]) -> None:
    registered_rules("test_settings:OfAPackage")
    assert rules()["X001"] is OfAPackage
    assert codes(("X",)) == {"X001"}


class OfNoPass(EqualDraws):
    """A rule whose fix is a pass that nobody has."""

    code = "X002"
    name = "of-no-pass"
    fix = Fix("no-such-pass")


def test_a_rule_whose_fix_is_no_pass_stops_nothing(registered_rules: Callable[..., None]) -> None:
    registered_rules("test_settings:OfNoPass")
    codes = mended_by(parse("default,carry-generators"))
    assert "X002" not in codes
    assert {"P001", "R001"} <= set(codes)
    assert mended_by(parse("clean-slices")) == ()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("no_such_module:Rule", "No module named"),
        ("test_settings:codes", "is not a subclass"),
        ("test_settings:Taken", "is taken"),
    ],
)
def test_what_is_no_rule_is_told_and_stops_nothing(
    value: str, message: str, registered_rules: Callable[..., None]
) -> None:
    builtin = set(rules())
    registered_rules(value)
    with pytest.warns(PlugInWarning, match=message):
        assert set(rules()) == builtin
