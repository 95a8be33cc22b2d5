"""Workflows and forms are valid, pinned, and allowed no more than they need."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[2]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
SCHEMAS = {
    "github-workflows": WORKFLOWS,
    "github-issue-forms": [
        file for file in sorted((GITHUB / "ISSUE_TEMPLATE").glob("*.yml")) if file.stem != "config"
    ],
    "github-issue-config": [GITHUB / "ISSUE_TEMPLATE" / "config.yml"],
    "dependabot": [GITHUB / "dependabot.yml"],
}
MATRIX = ["3.12", "3.13", "3.14"]


def read(file: Path) -> Any:
    return yaml.safe_load(file.read_text())


def jobs() -> list[Any]:
    return [
        pytest.param(file, name, job, id=f"{file.stem}, {name}")
        for file in WORKFLOWS
        for name, job in read(file)["jobs"].items()
    ]


@pytest.mark.skipif(find_spec("check_jsonschema") is None, reason="is of the extra scanopt[dev]")
@pytest.mark.parametrize("schema", SCHEMAS)
def test_files_follow_the_schemas_of_github(schema: str) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}"]
    done = subprocess.run(
        [*command, *map(str, SCHEMAS[schema])], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.stem)
def test_what_every_workflow_says(file: Path) -> None:
    workflow = read(file)
    assert workflow["concurrency"]["group"]
    # What is written in the workflow holds for every job that says nothing: to read, or nothing.
    assert workflow["permissions"] in ({}, {"contents": "read"})
    # YAML reads the key `on` as a truth value.
    assert workflow[True]


@pytest.mark.parametrize(("file", "name", "job"), jobs())
def test_what_every_job_says(file: Path, name: str, job: Any) -> None:
    assert 0 < job["timeout-minutes"] <= 180
    for step in job["steps"]:
        if "uses" in step:
            assert re.fullmatch(r"[\w-]+/[\w-]+@v\d+\.\d+\.\d+", step["uses"]), step["uses"]
        if step.get("uses", "").startswith("actions/checkout") and name != "benchmarks":
            assert step["with"]["persist-credentials"] is False
        # Text of an event must not become part of a script.
        assert "${{" not in step.get("run", "")
        for script in re.findall(r"(?:^|\s)(\.ci/[\w.-]+)", step.get("run", "")):
            assert (ROOT / script).stat().st_mode & 0o100, script
        for target in re.findall(r"make ((?:[\w./-]+ ?)+)", step.get("run", "")):
            for each in target.split():
                assert re.search(rf"^{re.escape(each)}:", (ROOT / "Makefile").read_text(), re.M)


WRITING = {
    ("docs", "publish"): {"pages": "write", "id-token": "write"},
    ("release", "publish"): {"id-token": "write"},
    ("release", "announce"): {"contents": "write"},
    ("weekly", "report"): {"contents": "read", "issues": "write"},
    ("weekly", "benchmarks"): {"contents": "write"},
}
"""The jobs that may write something."""


@pytest.mark.parametrize(("file", "name", "job"), jobs())
def test_jobs_may_write_what_they_have_to(file: Path, name: str, job: Any) -> None:
    given = job.get("permissions", {})
    assert given in (WRITING.get((file.stem, name), {}), {"contents": "read"})


def test_systems_and_versions() -> None:
    """Those that `.ci/make-venv` takes, on Linux and macOS."""
    workflow = read(GITHUB / "workflows" / "ci.yml")
    systems = {
        job["runs-on"]: job["strategy"]["matrix"]["python"] for job in workflow["jobs"].values()
    }
    assert systems == {"ubuntu-latest": MATRIX, "macos-latest": MATRIX}
    make_venv = (ROOT / ".ci" / "make-venv").read_text()
    assert "(3, 12) <= sys.version_info[:2] < (3, 15)" in make_venv
    metadata = (ROOT / "pyproject.toml").read_text()
    for version in MATRIX:
        assert f"python{version}" in make_venv
        assert f'"Programming Language :: Python :: {version}"' in metadata


def test_a_release_is_published_by_a_job_that_runs_nothing_else() -> None:
    workflow = read(GITHUB / "workflows" / "release.yml")
    assert workflow[True]["push"]["tags"] == ["v*"]
    publish = workflow["jobs"]["publish"]
    assert publish["needs"] == "build"
    assert publish["environment"]["name"] == "pypi"
    assert [step["uses"].partition("@")[0] for step in publish["steps"]] == [
        "actions/download-artifact",
        "pypa/gh-action-pypi-publish",
    ]
    assert "secrets." not in (GITHUB / "workflows" / "release.yml").read_text()


def test_the_site_is_published_from_main_alone() -> None:
    workflow = read(GITHUB / "workflows" / "docs.yml")
    publish = workflow["jobs"]["publish"]
    assert publish["needs"] == "build"
    assert "github.ref == 'refs/heads/main'" in publish["if"]
    assert [step["uses"].partition("@")[0] for step in publish["steps"]] == ["actions/deploy-pages"]


def test_the_weekly_run_can_be_started_by_hand_and_tells_of_failures() -> None:
    workflow = read(GITHUB / "workflows" / "weekly.yml")
    assert set(workflow[True]) == {"schedule", "workflow_dispatch"}
    report = workflow["jobs"]["report"]
    assert (report["needs"], report["if"]) == (["pytensor-main", "deep"], "failure()")
    runs = [step.get("run", "") for step in workflow["jobs"]["pytensor-main"]["steps"]]
    assert any("pymc-devs/pytensor@main" in run for run in runs)


def test_all_deep_tests_run_each_week() -> None:
    """A commit runs a part of them, on a slow machine a small one."""
    deep = read(GITHUB / "workflows" / "weekly.yml")["jobs"]["deep"]
    shares = deep["strategy"]["matrix"]["share"]
    assert shares == [f"{number}/{len(shares)}" for number in range(1, len(shares) + 1)]
    last = deep["steps"][-1]
    assert (last["run"], last["env"]["SHARE"]) == ("make test-deep", "${{ matrix.share }}")


def test_a_bug_is_reported_with_the_script_of_its_graph() -> None:
    form = read(GITHUB / "ISSUE_TEMPLATE" / "bug.yml")
    graph = next(field for field in form["body"] if field.get("id") == "graph")
    assert "scanopt python" in graph["attributes"]["description"]
    assert graph["validations"]["required"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="the scripts are of bash")
@pytest.mark.parametrize("script", ["run", "dist", "keep-benchmarks", "report-failure"])
def test_scripts_can_be_read(script: str) -> None:
    subprocess.run(["bash", "-n", str(ROOT / ".ci" / script)], check=True)
