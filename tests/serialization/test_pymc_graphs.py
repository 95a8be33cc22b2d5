"""Graphs of PyMC's distributions load as they were saved, and as cloudpickle wrote them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest

from scanopt_cli.equivalence.canonical import digest
from scanopt_cli.ir.graph import as_graph
from scanopt_cli.ir.inner_graphs import walk
from scanopt_cli.serialization.loading import load
from scanopt_cli.serialization.saving import save

pytestmark = pytest.mark.pymc
pm = pytest.importorskip("pymc")

DISTRIBUTIONS: dict[str, Callable[[], Any]] = {
    "truncated": lambda: pm.Truncated.dist(pm.Normal.dist(0, 1), lower=-1, upper=2),
    "hurdle, truncated discretely": lambda: pm.HurdlePoisson.dist(0.5, 3.0),
    "hurdle": lambda: pm.HurdleGamma.dist(0.5, 2.0, 1.0),
    "censored": lambda: pm.Censored.dist(pm.Normal.dist(0, 1), lower=-1, upper=2),
    "mixture": lambda: pm.NormalMixture.dist(w=[0.3, 0.7], mu=[0, 1]),
    "random walk": lambda: pm.GaussianRandomWalk.dist(init_dist=pm.Normal.dist(), steps=4),
    "AR": lambda: pm.AR.dist(rho=[0.5, 0.1], init_dist=pm.Normal.dist(), steps=5),
    "GARCH": lambda: pm.GARCH11.dist(1, 0.1, 0.1, 1.0, steps=3),
    "LKJ": lambda: pm.LKJCorr.dist(n=3, eta=2),
    "zero sum": lambda: pm.ZeroSumNormal.dist(1, shape=3),
    "stick breaking": lambda: pm.StickBreakingWeights.dist(2, 3),
    "interpolated": lambda: pm.Interpolated.dist(np.arange(4.0), np.ones(4)),
    "Wishart": lambda: pm.Wishart.dist(5, np.eye(2)),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_distributions_load(name: str, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph = as_graph(([], [DISTRIBUTIONS[name]()]))
        save(graph, tmp_path / "saved.pkl")
        (tmp_path / "pickled.pkl").write_bytes(cloudpickle.dumps(list(graph.outputs)))
        save(graph, tmp_path / "saved.scanopt")
        for file in ("saved.pkl", "pickled.pkl", "saved.scanopt"):
            assert digest(load(tmp_path / file).fgraph) == digest(graph.fgraph)


def test_models_with_dims_load(tmp_path: Path) -> None:
    """XTensors, with a generator."""
    import pymc.dims as pmd

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pm.Model(coords={"a": range(3)}) as model:
            pmd.Normal("y", pmd.Normal("x", 0, 1, dims="a"), 1, dims="a")
        graph = as_graph(([], list(model.free_RVs)))
        for file in ("saved.pkl", "saved.scanopt"):
            save(graph, tmp_path / file)
            assert digest(load(tmp_path / file).fgraph) == digest(graph.fgraph)


def test_marginalized_models_load(tmp_path: Path) -> None:
    """Its Op remembers the name of the variable, any text, that was summed over."""
    extras = pytest.importorskip("pymc_extras")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pm.Model() as model:
            kind = pm.Bernoulli("kind of x", 0.3)
            x = pm.Normal("x", kind * 2.0, 1.0)
            pm.Normal("y", x, 1.0)
        marginal = extras.marginalize(model, ["kind of x"])
        graph = as_graph(([], [marginal["y"]]))
        held = [vars(node.op).get("marginalized_name") for node in walk(graph.fgraph)]
        assert "kind of x" in held
        for file in ("saved.pkl", "saved.scanopt"):
            save(graph, tmp_path / file)
            assert digest(load(tmp_path / file).fgraph) == digest(graph.fgraph)
