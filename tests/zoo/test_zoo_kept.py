"""Every model of the zoo computes the same when its rewritten graph and code are read from disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytensor
import pytest
from pytensor.compile.mode import Mode, get_mode
from pytensor.configdefaults import config

import scanopt_cli as so
from scanopt_cli.integration.compilation import keeping, optimizing_stage
from scanopt_cli.pipeline.grammar import PRESETS
from scanopt_cli.store import Store
from support.compiled_ways import VM
from support.zoo.model import Model, as_arrays, outputs_of
from support.zoo.models import MODELS

_LOOPS = PRESETS["loop"].replace("to-loop", "to-loop{linker=numba}")
CASES = [
    pytest.param(model, order, passes, id=f"{model}-{order}-{passes}")
    for model in MODELS
    for order in range(model.order + 1)
    for passes in (("grad", "loop") if order == 1 else ("loop",))
]


def _check(
    model: Model, order: int, passes: str, mode: Mode, path: Path, patch: pytest.MonkeyPatch
) -> None:
    store = Store(path, 1 << 30)
    patch.setattr(keeping, "user_store", lambda: store)
    patch.setenv("SCANOPT_CACHE", "on")

    def run() -> list[np.ndarray]:
        graph = outputs_of(model, order)
        flags = config.change_flags(on_opt_error="raise")
        with flags, so.enabled(_LOOPS if passes == "loop" else passes):
            function = pytensor.function(*graph, mode=mode, on_unused_input="ignore")
        return as_arrays(function(*model.fresh_arguments()))

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("the graph is rewritten again")

    wanted = run()
    kept = store.usage()
    assert kept.entries > 0
    patch.setattr(optimizing_stage, "run_pipeline", fail)
    got = run()
    for one, other in zip(wanted, got, strict=True):
        np.testing.assert_array_equal(one, other)
    assert store.usage() == kept


@pytest.mark.tiered(every=24)
@pytest.mark.parametrize(("model", "order", "passes"), CASES)
def test_in_the_virtual_machine(
    model: Model, order: int, passes: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _check(model, order, passes, VM, tmp_path / "kept", monkeypatch)


# As in `test_zoo_compiled`: one model of each kind, and all of them where there are hours.
CHOSEN = ("Kalman", "HMM, log space", "AR(2)", "RNN", "Metropolis", "Newton, until it stands")
BY_NUMBA = [
    pytest.param(
        model,
        id=str(model),
        marks=pytest.mark.deep if model.name in CHOSEN else pytest.mark.numba_zoo,
    )
    for model in MODELS
]


@pytest.mark.parametrize("model", BY_NUMBA)
def test_by_numba(model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order = min(1, model.order)
    _check(model, order, "loop", get_mode("NUMBA"), tmp_path / "kept", monkeypatch)
