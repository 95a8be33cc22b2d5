"""A store of each test's own, and passes that must not run again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pytensor.configdefaults import config

from scanopt_cli.integration.compilation import keeping, optimizing_stage
from scanopt_cli.store import Store
from support.kept import MIB


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    made = Store(tmp_path / "kept", 64 * MIB)
    monkeypatch.setattr(keeping, "user_store", lambda: made)
    monkeypatch.delenv("SCANOPT_CACHE")
    return made


@pytest.fixture
def no_passes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Lets passes run no more, once it is called."""

    def forbid() -> None:
        def fail(*_: Any, **__: Any) -> None:
            raise RuntimeError("the graph is rewritten again")

        monkeypatch.setattr(optimizing_stage, "run_pipeline", fail)

    with config.change_flags(on_opt_error="raise"):
        yield forbid
