"""Samplers inside of `enabled`: the loops are rewritten, and the posterior is the same."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import scanopt_cli as so
from support.pymc_models import ar2, garch, local_level

pytestmark = [pytest.mark.samplers, pytest.mark.filterwarnings("ignore")]
SAMPLERS = ("pymc", "nutpie", "numpyro", "blackjax")
README = Path(__file__).parents[2] / "README.md"


@pytest.fixture(autouse=True)
def _jax_as_it_was() -> Iterator[None]:
    """PyMC has JAX compute with 64 bits, and PyTensor as well."""
    import jax

    before = jax.config.jax_enable_x64
    yield
    jax.config.update("jax_enable_x64", before)


def sampled(model: Any, sampler: str) -> Any:
    import pymc as pm

    with model:
        return pm.sample(
            draws=400,
            tune=300,
            chains=2,
            cores=1,
            random_seed=3,
            progressbar=False,
            compute_convergence_checks=False,
            nuts_sampler=sampler,
            # PyMC's own sampler takes the mode that is the default outside of these tests.
            compile_kwargs={"mode": "NUMBA"} if sampler in ("pymc", "nutpie") else None,
        )


def left_in(done: so.Enabled) -> list[so.LoopLeft]:
    return [loop for compilation in done.compilations for loop in compilation.left]


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_posteriors_with_and_without(sampler: str) -> None:
    """Means differ by less than the error of drawing, four times."""
    from arviz_stats import ess

    model = local_level()
    plain = sampled(model, sampler).posterior
    with so.enabled() as done:
        clean = sampled(model, sampler).posterior
    assert {loop.design for loop in left_in(done)} == {"TracedLoop"}
    for name in ("level", "noise"):
        variances = [float(draws[name].var() / ess(draws[name].values)) for draws in (plain, clean)]
        difference = abs(float(plain[name].mean() - clean[name].mean()))
        assert difference < 4 * np.sqrt(sum(variances))


@pytest.mark.parametrize("make", [garch, local_level, ar2])
def test_log_densities_in_jax(make: Any) -> None:
    """What NumPyro and BlackJAX sample, and differentiate by JAX."""
    import jax
    from pymc.sampling.jax import get_jaxified_logp

    jax.config.update("jax_enable_x64", True)
    model = make()
    plain = get_jaxified_logp(model, negative_logp=False)
    with so.enabled() as done:
        clean = get_jaxified_logp(model, negative_logp=False)
    assert {loop.design for loop in left_in(done)} == {"TracedLoop"}
    start = [model.initial_point()[variable.name] for variable in model.value_vars]
    rng = np.random.default_rng(2)
    for size in (0.0, 0.1, 0.5):
        point = [np.asarray(value + size * rng.normal(size=np.shape(value))) for value in start]
        expected = jax.value_and_grad(plain)(point)
        found = jax.jit(jax.value_and_grad(clean))(point)
        for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10)
    # A chain for each row, as samplers run them.
    several = [np.stack([value, value + 0.1]) for value in start]
    np.testing.assert_allclose(jax.vmap(clean)(several), jax.vmap(plain)(several), rtol=1e-10)


@pytest.mark.parametrize("gradients", ["pytensor", "jax"])
def test_nutpie_through_jax(gradients: str) -> None:
    """Gradients of a loop by PyTensor, as nutpie's default is, and by JAX."""
    import jax
    import nutpie

    def compiled() -> Any:
        made = nutpie.compile_pymc_model(model, backend="jax", gradient_backend=gradients)
        return made._make_logp_func()

    jax.config.update("jax_enable_x64", True)
    model = local_level()
    plain = compiled()
    with so.enabled() as done:
        clean = compiled()
    assert {loop.design for loop in left_in(done)} == {"TracedLoop"}
    for point in np.array([[0.1, -0.2], [0.0, 0.0], [-1.0, 2.0]]):
        for one, other in zip(clean(point), plain(point), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-10)


def test_the_example_of_the_readme() -> None:
    """Its lines alone: the model is one of ours."""
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    (found,) = [block for block in blocks if "import nutpie" in block]
    example = found.replace("from garch import model\n", "")
    scope: dict[str, Any] = {"model": garch()}
    exec(example, scope)
    assert scope["trace"].posterior.sizes["draw"] == 1000
    assert {loop.design for loop in left_in(scope["done"])} == {"TracedLoop"}
    assert scope["compiled"].compiled_logp_func.__name__ == "caller"
