"""What tests of rules share."""

from __future__ import annotations

import pytest

from scanopt_cli.rules import compiled_loops


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give PyTensor a minute for each graph: on a busy machine, 5 s are over without an answer."""
    monkeypatch.setattr(compiled_loops, "_SECONDS", 60.0)
