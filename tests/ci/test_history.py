"""The page of benchmarks over time is made of the runs that are kept, machine by machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks.history import write_page

ROOT = Path(__file__).parents[2]


def stored(folder: Path, number: int, seconds: dict[str, float], brand: str = "A chip") -> None:
    data: dict[str, Any] = {
        "datetime": f"2026-11-{number:02}T09:00:00",
        "commit_info": {"id": f"{number}abcdef0123", "dirty": number == 2},
        "machine_info": {
            "system": "Linux",
            "machine": "x86_64",
            "python_version": "3.13.1",
            "cpu": {"brand_raw": brand, "count": 2},
        },
        "benchmarks": [
            {"fullname": f"tests/benchmarks/test_a.py::{name}", "stats": {"min": one}}
            for name, one in seconds.items()
        ],
    }
    file = folder / "Linux" / f"{number:04}_run.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(data))


def test_a_page_of_two_machines(tmp_path: Path) -> None:
    runs, page = tmp_path / "runs", tmp_path / "docs" / "page.md"
    stored(runs, 2, {"test_x[<1>]": 0.2, "test_y": 1e-6})
    stored(runs, 1, {"test_x[<1>]": 0.1, "test_gone": 1.0})
    stored(runs, 3, {"test_x[<1>]": 0.5}, brand="Another")
    written = write_page(runs, page)
    assert [file.name for file in written] == ["page.md", "page-0.svg", "page-1.svg"]
    text = page.read_text()
    assert "## A chip, 2 cores, Linux, Python 3.13" in text
    assert "2 runs: 2026-11-01 (1abcdef) to 2026-11-02 (2abcdef+)." in text
    assert "| `test_a.py::test_x[<1>]` | 100 ms | 200 ms | 2.00 |" in text
    # A benchmark that one run alone has is compared with nothing, and one that is gone is left out.
    assert "| `test_a.py::test_y` | 1 µs | 1 µs |  |" in text
    assert "test_gone" not in text
    assert "## Another, 2 cores, Linux, Python 3.13\n\n1 run: 2026-11-03 (3abcdef)." in text
    for picture in written[1:]:
        assert f"]({picture.name})" in text
        root = ElementTree.parse(picture).getroot()
        assert root.tag.endswith("svg")
    lines = root_lines(tmp_path / "docs" / "page-0.svg")
    assert len(lines) == 2
    # Twice the time is higher up, where y is smaller.
    (_, before), (_, after) = (map(float, point.split(",")) for point in lines[0].split())
    assert after < before


def root_lines(file: Path) -> list[str]:
    root = ElementTree.parse(file).getroot()
    return [one.attrib["points"] for one in root if one.tag.endswith("polyline")]


def test_no_run(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="make bench-save"):
        write_page(tmp_path, tmp_path / "page.md")
    assert not (tmp_path / "page.md").exists()


def test_the_page_of_this_repository_is_that_of_its_runs(tmp_path: Path) -> None:
    figures = ROOT / "docs" / "figures"
    made = write_page(figures / "runs", tmp_path / "history.md")
    for file in made:
        assert (figures / file.name).read_text() == file.read_text(), "run `make bench-save`"


def test_what_is_kept_names_no_machine() -> None:
    for file in (ROOT / "docs" / "figures" / "runs").glob("*/*.json"):
        data = json.loads(file.read_text())
        assert not {"node", "release"} & set(data["machine_info"])
        assert not {"project", "branch"} & set(data["commit_info"])
