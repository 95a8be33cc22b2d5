"""What nutpie calls inside of `enabled`: the same as outside, compiled once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytensor.tensor as pt
import pytest

import scanopt_cli as so
from scanopt_cli.integration.compilation import nutpie_wrappers
from support.graph_building import scan
from support.nutpie_functions import expanded, logp_of
from support.pymc_models import garch

pytestmark = [pytest.mark.samplers, pytest.mark.filterwarnings("ignore")]


def with_data() -> Any:
    """A loop over shared data, of several types and shapes; one parameter is a matrix."""
    import pymc as pm

    rng = np.random.default_rng(5)
    with pm.Model() as model:
        rows = pm.Data("rows", rng.normal(size=(7, 3)))
        taken = pm.Data("taken", np.array([0, 2, 1, 1, 0, 2, 2]))
        scale = pm.Data("scale", 0.5)
        w = pm.Normal("w", 0, 1, shape=(3, 2))
        rate = pm.Deterministic("rate", pt.sigmoid(pm.Normal("raw", 0, 1)))
        means = scan(
            lambda row, k, m, w, rate: m * (1 - rate) + (row @ w).sum() * rate + k,
            sequences=[rows, taken],
            outputs_info=[pt.zeros(())],
            non_sequences=[w, rate],
        )
        pm.Normal("y", means, scale, observed=np.linspace(0, 1, 7))
    return model


def compiled_of(model: Any, **arguments: Any) -> Any:
    import nutpie

    return nutpie.compile_pymc_model(model, **arguments)


def name_of(compiled: Any) -> str:
    """Which function nutpie had compiled: its own, or one that calls ours."""
    return str(compiled.compiled_logp_func.__name__)


def points(compiled: Any) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    return [rng.normal(size=compiled.n_dim) * size for size in (0.01, 0.3, 1.0)]


def same(plain: Any, ours: Any) -> None:
    for point in points(plain):
        status, value, gradient = logp_of(plain, point)
        found = logp_of(ours, point)
        assert found[0] == status == 0
        np.testing.assert_allclose(found[1], value, rtol=1e-10)
        np.testing.assert_allclose(found[2], gradient, rtol=1e-9, atol=1e-10)
        status, values = expanded(plain, point)
        found = expanded(ours, point)
        assert found[0] == status == 0
        np.testing.assert_allclose(found[1], values, rtol=1e-10)


@pytest.mark.parametrize("make", [garch, with_data])
def test_values_with_and_without(make: Callable[[], Any]) -> None:
    model = make()
    plain = compiled_of(model)
    with so.enabled() as done:
        ours = compiled_of(model)
    assert (name_of(plain), name_of(ours)) == ("logp_numba", "caller")
    left = [loop for compilation in done.compilations for loop in compilation.left]
    assert left
    assert not [loop for loop in left if loop.design == "Scan"]
    same(plain, ours)


def test_our_wrappers_alone() -> None:
    """Without passes the loops stay Scans."""
    model = with_data()
    with so.enabled("none"):
        ours = compiled_of(model)
    assert name_of(ours) == "caller"
    same(compiled_of(model), ours)


def test_other_data() -> None:
    model = with_data()
    plain = compiled_of(model)
    with so.enabled():
        ours = compiled_of(model)
    data = {"rows": np.ones((7, 3)) * [1, 2, 3], "taken": np.arange(7), "scale": 1.5}
    same(plain.with_data(**data), ours.with_data(**data))
    (point, *_) = points(ours)
    assert logp_of(ours, point)[1] != logp_of(ours.with_data(**data), point)[1]
    # Lengths that do not fit are an error, not a crash.
    shorter = {"rows": np.ones((5, 3)), "taken": np.arange(5)}
    assert logp_of(ours.with_data(**shorter), point)[0] == 1
    assert logp_of(plain.with_data(**shorter), point)[0] == 1


def test_errors_are_told_by_the_same_numbers() -> None:
    import pymc as pm

    with pm.Model() as model:
        x = pm.Flat("x")
        y = pm.Flat("y")
        trace = scan(lambda h, x: h * x, outputs_info=[pt.ones(())], non_sequences=[x], n_steps=2)
        # The gradient of sqrt(0) is infinite, as are log(0) and the density of a scale below 0.
        pm.Potential("p", pt.sqrt(trace[-1]) + pt.where(y > 9, pt.log(y - y), 0))
        pm.Potential("q", pm.logp(pm.Normal.dist(0, y), 0.5))
    plain = compiled_of(model)
    with so.enabled():
        ours = compiled_of(model)
    found = []
    for x, y in [(1.0, 1.0), (0.0, 1.0), (1.0, -1.0), (np.nan, 1.0), (1.0, 10.0)]:
        point = np.array([x, y])
        found.append(logp_of(plain, point)[0])
        assert logp_of(ours, point)[0] == found[-1]
        assert expanded(ours, point)[0] == expanded(plain, point)[0] == 0
    assert found == [0, 3, 4, 3, 4]
    for compiled in (plain, ours):
        assert logp_of(compiled, np.ones(2), dim=3)[0] == -1
        assert expanded(compiled, np.ones(2), dim=3)[0] == -1


def test_the_installed_version_is_known() -> None:
    """If not: read what changed in nutpie's functions, and change ours before the digest."""
    import nutpie.compile_pymc

    name = "_make_c_logp_func"
    assert getattr(nutpie.compile_pymc, name).__module__ == "nutpie.compile_pymc"
    assert nutpie_wrappers.digest(nutpie.compile_pymc) in nutpie_wrappers._KNOWN


def test_a_version_that_is_not_known_keeps_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    import nutpie.compile_pymc

    monkeypatch.setattr(nutpie_wrappers, "_KNOWN", frozenset({"other"}))
    before = [getattr(nutpie.compile_pymc, name) for name in nutpie_wrappers._REPLACED]
    nutpie_wrappers.replace_wrappers()
    assert before == [getattr(nutpie.compile_pymc, name) for name in nutpie_wrappers._REPLACED]
    assert nutpie_wrappers.digest(object()) == "none"


def test_what_numba_may_not_keep_has_the_wrappers_of_nutpie() -> None:
    import pytensor

    with so.enabled(), pytensor.config.change_flags(numba__cache=False):
        ours = compiled_of(garch())
    assert name_of(ours) == "logp_numba"
    same(compiled_of(garch()), ours)


def test_numba_never_keeps_an_address() -> None:
    """What nutpie hands on to Numba: by ``cache``, it would be found by the next process."""
    with so.enabled():
        ours = compiled_of(garch(), cache=True)
    assert name_of(ours) == "caller"
    assert ours.compiled_logp_func._library.has_dynamic_globals


_PROGRAM = """
import nutpie, scanopt_cli
from support.pymc_models import garch

with scanopt_cli.enabled():
    nutpie.compile_pymc_model(garch())
"""


def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    def run() -> set[str]:
        environment = {
            **os.environ,
            "PYTENSOR_FLAGS": f'{os.environ["PYTENSOR_FLAGS"]},base_compiledir="{tmp_path}"',
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
        subprocess.run([sys.executable, "-c", _PROGRAM], check=True, env=environment)
        return {path.name for path in tmp_path.rglob("*.nb*")}

    first = run()
    for name in ("nutpie_logp", "nutpie_expand"):
        assert any(name in file for file in first)
    assert run() == first
