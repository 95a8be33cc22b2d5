"""Figures that the README and the start repeat are those of the tables, which benchmarks write."""

from __future__ import annotations

import re
from math import prod
from pathlib import Path

import pytest

from support.pages import ROOT, SITE

TABLES = SITE / "figures" / "tables"
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def rows(path: Path) -> list[list[str]]:
    """The cells of a page's tables, row by row."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line[:1] == "|"]


def figures(path: Path) -> set[str]:
    """The numbers in all cells but the first ones."""
    return {number for row in rows(path) for cell in row[1:] for number in _NUMBER.findall(cell)}


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", SITE / "start" / "pymc.md"], ids=lambda p: p.name
)
def test_figures_in_tables_are_measured_ones(page: Path) -> None:
    measured = figures(TABLES / "samplers.md") | figures(TABLES / "pymc_models.md")
    told = figures(page)
    assert len(told) >= 7
    assert told <= measured, "copy them from docs/figures/tables"


def test_how_many_times_as_fast_models_are_sampled() -> None:
    """By nutpie, where the density is a loop."""
    ratios = []
    for name, *_, sampling in rows(TABLES / "samplers.md"):
        if name in ("nutpie: GARCH(1,1)", "nutpie: local level"):
            alone, inside = map(float, sampling.split("/"))
            ratios.append(int(alone / inside))
    told = f"{min(ratios)} to {max(ratios)} times as fast"
    for page in (
        ROOT / "README.md",
        SITE / "figures" / "sampling.md",
        SITE / "how_to" / "faster.md",
    ):
        assert told in page.read_text(encoding="utf-8"), told


def test_how_long_models_take_to_compile() -> None:
    """The geometric mean of all models and both functions."""
    ratios = [
        float(ratio.strip().rstrip("x"))
        for name, *cells in rows(TABLES / "pymc_models.md")
        if "," in name or "RNN" in name
        for ratio in cells[5].split("/")
    ]
    assert len(ratios) == 14
    mean = prod(ratios) ** (1 / len(ratios))
    assert "a fifth of the time" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert 4.5 < mean < 5.5
    assert f"of compiling {mean:.1f}x" in (SITE / "figures" / "models.md").read_text(
        encoding="utf-8"
    )
