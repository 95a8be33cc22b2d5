"""What tests of rules share."""

from __future__ import annotations

import pytest

from scanopt_cli.rules import compiled_loops


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give PyTensor a minute for each graph, not 5 s of processor time.

    To collect the garbage of a process that has run thousands of tests may take that long.
    """
    monkeypatch.setattr(compiled_loops, "_SECONDS", 60.0)
