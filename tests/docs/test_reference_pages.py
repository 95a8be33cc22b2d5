"""The reference is generated from the code: it has all of it."""

from __future__ import annotations

import re
import sys

import pytest

import scanopt_cli as so
from scanopt_cli.cli import app
from scanopt_cli.pipeline.grammar import PRESETS
from scanopt_cli.pipeline.registry import registry
from scanopt_cli.remarks import Code, Why
from scanopt_cli.rules.rule_registry import rules
from support.pages import ROOT, SITE

sys.path.insert(0, str(SITE / "_ext"))
import generated_pages
from generated_pages import GENERATED, PLACE, filled


def test_every_command_is_there_with_its_options() -> None:
    text = generated_pages.commands()
    for name, function in app._COMMANDS:
        assert f"\n## {name}\n" in f"\n{text}"
        for option in re.findall(r'"(--[\w-]+)"', _source(function)):
            assert f"`{option}" in text, (name, option)
    assert "scanopt check [OPTIONS] GRAPH|DIR...\n" in text
    assert "Function" not in text
    assert "<" not in re.sub(r"```.*?```|`[^`]*`|\\<", "", text, flags=re.DOTALL)


def _source(function: object) -> str:
    import inspect

    return inspect.getsource(function)  # type: ignore[arg-type]


def test_every_pass_is_there_and_in_its_presets() -> None:
    text = generated_pages.passes()
    for name in registry():
        assert f"### {name}\n" in text
    assert "Options: `prealloc=true`" in text
    presets = generated_pages.presets()
    for name in (*PRESETS, *registry()):
        assert f"`{name}" in presets, name
    page = (SITE / "reference" / "passes.md").read_text(encoding="utf-8")
    told = set(re.findall(r"^\| \[`([\w-]+)`\]", page, re.MULTILINE))
    own = {n for n, cls in registry().items() if cls.__module__.startswith("scanopt_cli.")}
    assert told == own, "the table of docs/reference/passes.md has a line for each pass"


@pytest.mark.usefixtures("registered_rules")
def test_every_rule_is_there() -> None:
    page = (SITE / "rules.md").read_text(encoding="utf-8")
    for code, rule in rules().items():
        assert f"### {code} {rule.name}\n" in page


def test_every_remark_and_every_reason_is_there() -> None:
    text = generated_pages.remarks()
    for code in Code:
        assert text.count(f"| `{code}` |") == 1, code
    reasons = generated_pages.reasons()
    for why in Why:
        assert f"| `{why}` |" in reasons, why


def test_every_public_name_is_there() -> None:
    text = generated_pages.python()
    for name in so.__all__:
        if name != "loop":
            assert re.search(rf":: scanopt_cli\.{name}$", text, re.MULTILINE), name
    assert ":: scanopt_cli.loop.scan\n" in text


def test_every_topic_is_there() -> None:
    text = generated_pages.topics()
    files = sorted((ROOT / "scanopt_cli" / "explain" / "topics").glob("*.md"))
    assert len(files) > 20
    for file in files:
        title = file.read_text(encoding="utf-8").partition("\n")[0]
        assert f"#{title}\n" in f"{text}\n", file.name
    assert not re.search(r"^# ", text, re.MULTILINE)


def test_all_that_is_generated_has_a_place() -> None:
    places = []
    for path in SITE.rglob("*.md"):
        text = path.read_text(encoding="utf-8")
        places += PLACE.findall(text)
        assert not PLACE.search(filled(text, path.parent))
    assert sorted(places) == sorted(GENERATED)
