"""docs/rules.md is what ``scanopt rules`` prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from scanopt_cli.reports import as_markdown
from scanopt_cli.reports.rules_report import rules_report
from scanopt_cli.rules.rule_manuals import rule_manuals

PAGE = Path(__file__).parents[2] / "docs" / "rules.md"


@pytest.mark.usefixtures("registered_rules")
def test_the_page_is_up_to_date() -> None:
    """Without the rules of packages that happen to be installed."""
    page = as_markdown.render(rules_report(rule_manuals(), whole=True))
    assert PAGE.read_text(encoding="utf-8") == f"{page}\n", "run `make docs`"


def test_code_is_code_in_markdown() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    assert not [line for line in lines if line.endswith("::")]
    assert "    pt.grad(graph.outputs[0], graph.inputs[0])  # wrong" in lines
