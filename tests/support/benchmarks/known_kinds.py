"""Graphs that tests and benchmarks know by name, and derivatives, each made when asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from importlib.util import find_spec

import scanopt_cli as so
from scanopt_cli.ir.graph import Graph, from_io
from support.benchmarks.batch_cases import batch
from support.real_graphs import GRAPHS
from support.sample_building import samples
from support.zoo.model import Model, outputs_of
from support.zoo.models import MODELS

type Made = Callable[[], Graph]

_BATCHES = ("Q-learning", "masked HMM", "softmax", "volatility", "tanh")
_SUBJECTS = (4, 12, 50)
_CHOICES = 3


def known() -> dict[str, Mapping[str, Made]]:
    """Return the graphs of each kind by name; models that are written for JAX too, if it is there.

    There are derivatives of the zoo as `so.grad` makes them.
    """
    built = samples()
    first, second = ([model for model in MODELS if model.wrt and model.order >= n] for n in (1, 2))
    kinds: dict[str, Mapping[str, Made]] = {
        "samples": {name: partial(built.__getitem__, name) for name in built},
        "zoo": {str(model): partial(_value, model) for model in MODELS},
        "zoo, first derivatives": {str(model): partial(_derivative, model, 1) for model in first},
        "zoo, second derivatives": {str(model): partial(_derivative, model, 2) for model in second},
        "batches of subjects": {
            f"{kind} {subjects}{' symbolic' * symbolic}{' gradient' * gradient}": partial(
                batch(kind, subjects, _CHOICES, is_symbolic=symbolic).graph, gradient=gradient
            )
            for kind in _BATCHES
            for subjects in _SUBJECTS
            for symbolic in (False, True)
            for gradient in (False, True)
        },
        "every kind of Op": {name: partial(_of_pair, name) for name in GRAPHS},
    }
    if find_spec("jax") is not None:
        cases = import_module("support.benchmarks.model_loops").MODEL_LOOPS
        kinds["models, with gradients"] = {name: case.graph for name, case in cases.items()}
    return kinds


def _value(model: Model) -> Graph:
    return from_io(*outputs_of(model))


def _derivative(model: Model, order: int) -> Graph:
    return so.grad(_value(model), order, wrt=list(model.wrt)).graph


def _of_pair(name: str) -> Graph:
    inputs, outputs = GRAPHS[name]()
    return from_io(list(inputs), list(outputs))
