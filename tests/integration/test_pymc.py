"""PyMC programs inside of `enabled`: the same values, fewer loops, and samplers that run."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from pytensor.compile.mode import Mode

import scanopt_cli as so
from support.compiled_gradients import counts
from support.pymc_models import MODELS, garch, sir

pytestmark = pytest.mark.pymc
# Numba takes minutes to compile a Hessian of a loop for the first time; sampling, below, uses it.
VM = Mode("vm", "fast_run")


@pytest.fixture(autouse=True)
def _warnings_of_pymc() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of its Hessian's sign
        yield


def points(model: Any) -> list[dict[str, np.ndarray]]:
    """The starting point of a model, and two points around it."""
    start = model.initial_point(random_seed=1)
    rng = np.random.default_rng(2)
    return [
        {name: value + shift * rng.normal(size=np.shape(value)) for name, value in start.items()}
        for shift in (0.0, 0.1, 0.5)
    ]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("what", ["compile_logp", "compile_dlogp", "compile_d2logp"])
def test_values_with_and_without(model: str, what: str) -> None:
    def compiled() -> Any:
        return getattr(MODELS[model](), what)(mode=VM)

    plain = compiled()
    with so.enabled() as done:
        clean = compiled()
    for point in points(MODELS[model]()):
        np.testing.assert_allclose(clean(point), plain(point), rtol=1e-8, atol=1e-10)
    assert counts(clean.f).mit_mot == 0
    # A loop that comes out of the Hessian's loop stands alone.
    assert counts(clean.f).scans <= counts(plain.f).scans + (what == "compile_d2logp")
    if what == "compile_d2logp":
        assert counts(plain.f).mit_mot > 0
        assert counts(clean.f).inner_nodes < counts(plain.f).inner_nodes
        assert done.compilations


def sampled(model: Callable[[], Any], *, tune: int = 10, **arguments: Any) -> Any:
    import pymc as pm

    with model():
        return pm.sample(
            draws=10,
            tune=tune,
            random_seed=3,
            progressbar=False,
            compute_convergence_checks=False,
            **arguments,
        )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("cores", [1, 2])
def test_sampling(cores: int) -> None:
    """Samples are finite, and what is compiled for the sampler went through the passes."""
    with so.enabled() as done:
        trace = sampled(garch, chains=2, cores=cores)
    assert any(item.before.mit_mot and not item.after.mit_mot for item in done.compilations)
    assert trace.posterior.sizes == {"chain": 2, "draw": 10}
    assert all(np.isfinite(trace.posterior[name]).all() for name in ("omega", "alpha", "beta"))


@pytest.mark.filterwarnings("ignore")
def test_sampling_with_and_without_starts_alike() -> None:
    """One draw from the same seed: later ones may differ, since sums are rounded otherwise."""
    plain = sampled(sir, tune=1, chains=1, cores=1)
    with so.enabled():
        clean = sampled(sir, tune=1, chains=1, cores=1)
    for name in ("beta", "gamma"):
        np.testing.assert_allclose(
            clean.posterior[name][0, 0], plain.posterior[name][0, 0], rtol=1e-4
        )
