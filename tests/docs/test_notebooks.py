"""The notebooks of the documentation run from start to end, and are kept without outputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import scanopt_cli as so

NOTEBOOKS = sorted((Path(so.__file__).parents[1] / "docs" / "notebooks").glob("*.ipynb"))
_SECONDS = 300


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_kept_without_outputs(path: Path) -> None:
    cells = json.loads(path.read_text("utf-8"))["cells"]
    for cell in cells:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


@pytest.mark.deep
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each cell runs, and each result shows itself as HTML."""
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("PYTHONPATH", str(Path(so.__file__).parents[1]))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path / "config"))
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=_SECONDS, resources=resources).execute()
    shown: list[Any] = [
        (cell.source, output["data"])
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if output.output_type == "execute_result"
    ]
    pages = [data for source, data in shown if source.startswith("so.view(")]
    tables = [data for source, data in shown if source.startswith(("so.check", "so.inspect"))]
    assert pages
    assert tables
    assert all("srcdoc=" in data["text/html"] for data in pages)
    assert all("<table>" in data["text/html"] or "<li" in data["text/html"] for data in tables)
