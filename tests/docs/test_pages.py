"""The README and every page of the site do what they show; see `support.pages`."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import chdir
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml
from pytensor.configdefaults import config

from build import SAMPLES, write
from support.pages import LANGUAGES, ROOT, Page, Reader, pages

PAGES = pages()
README, *SITE_PAGES = PAGES


def _cases() -> Iterator[object]:
    for page in PAGES:
        for need in page.needs:
            marks = [getattr(pytest.mark, need)] if need else []
            if "deep" in page.words:
                marks.append(pytest.mark.deep)
            name = page.name if need is None else f"{page.name}-{need}"
            yield pytest.param(page, need, id=name, marks=marks)


@pytest.fixture(scope="session")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample graphs, with the lines that wrote their loops, as `make samples` builds them."""
    folder = tmp_path_factory.mktemp("samples")
    with chdir(ROOT), config.change_flags(traceback__limit=8):
        for module in SAMPLES:
            write(import_module(module).build(), folder)
    return folder


@pytest.mark.parametrize(("page", "need"), [*_cases()])
def test_a_page(page: Page, need: str | None, samples: Path, tmp_path: Path) -> None:
    folder = tmp_path / "page"
    shutil.copytree(samples, folder / "sample_graphs")
    reader = Reader(folder, page, "own-cache" in page.words)
    try:
        for block in page.blocks:
            if page.needs_of(block) in (None, need):
                reader.read(block)
    finally:
        reader.close()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_all_code_is_in_blocks_that_are_run(page: Page) -> None:
    for block in page.blocks:
        assert block.language in LANGUAGES, f"{page.name}:{block.line}"
    fenced = False
    text = page.path.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(text, 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        prompt = line.lstrip().startswith("$ ")
        assert fenced or not prompt, f"{page.name}:{number}: a command outside of a block"
        indented = line.startswith("    ") and not text[number - 2].strip()
        in_list = any(
            before.startswith(("-", "1.", "*")) for before in text[max(0, number - 9) : number]
        )
        assert fenced or not indented or in_list, f"{page.name}:{number}: indented code is not run"
    assert not fenced


@pytest.mark.skipif(find_spec("check_jsonschema") is None, reason="is of the extra scanopt[dev]")
def test_workflows_on_pages_follow_the_schema_of_github(tmp_path: Path) -> None:
    """A list of steps is tried in a workflow around it."""
    workflows = []
    for page in PAGES:
        for block in page.blocks:
            found = yaml.safe_load(block.text) if block.language == "yaml" else None
            if isinstance(found, list) and any("run" in step for step in found):
                found = {"jobs": {"one": {"runs-on": "ubuntu-latest", "steps": found}}}
                found = {"on": "push", **found}
            if isinstance(found, dict) and "jobs" in found:
                path = tmp_path / f"{len(workflows)}.yml"
                # YAML reads the key `on` as a truth value.
                path.write_text(yaml.safe_dump(found).replace("true: ", "on: "))
                workflows.append(path)
    assert len(workflows) > 3
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema"]
    done = subprocess.run(
        [*command, "vendor.github-workflows", *map(str, workflows)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_readme_is_short() -> None:
    assert len(README.path.read_text(encoding="utf-8").splitlines()) <= 200
