"""A cost that is written for PyTensor and for JAX, and its value and gradient, compiled by each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import pytensor
import pytensor.tensor as pt
import scipy.linalg.cython_blas  # noqa: F401  # limits of its threads are set of what is loaded

import scanopt_cli as so
from scanopt_cli.ir.graph import Graph, from_io


@dataclass(frozen=True)
class Case:
    """A cost, written twice, and the values of its inputs; it is differentiated by ``wrt``.

    Inputs of floats are of ``dtype``. Where ``shapes_known`` is false, no length is known before
    the function runs; else, those from 100 on are not, which are lengths of series.
    """

    in_pytensor: Callable[..., Any]
    in_jax: Callable[..., Any] | None
    values: dict[str, Any]
    wrt: tuple[str, ...]
    shapes_known: bool = True
    by_hand: Callable[..., Any] | None = None
    dtype: str = "float64"

    def arguments(self) -> list[np.ndarray]:
        """Return the values of the inputs."""
        return [self._of_dtype(value) for value in self.values.values()]

    def graph(self) -> Graph:
        """Return the graph of the cost and its gradients."""
        inputs = {
            name: pt.tensor(name, dtype=value.dtype, shape=self._shape(value.shape))
            for name, value in zip(self.values, self.arguments(), strict=True)
        }
        cost = self.in_pytensor(**inputs)
        slopes = pt.grad(cost, [inputs[name] for name in self.wrt])
        return from_io(list(inputs.values()), [cost, *slopes])

    def compiled(self, form: str) -> Callable[..., Any]:
        """Return a function of the value and the gradient.

        Parameters
        ----------
        form
            ``jax``; ``pytensor``, in NUMBA; ``scanopt``, which optimizes the graph before that;
            ``enabled``, in whose block it is compiled; ``by hand``.
        """
        if form == "by hand":
            assert self.by_hand is not None
            return self.by_hand
        if form == "jax":
            return self._compiled_by_jax()
        graph = self.graph()
        if form == "scanopt":
            graph = so.optimize(graph, "loop").graph

        def compiled() -> Callable[..., Any]:
            function: Callable[..., Any] = pytensor.function(
                list(graph.inputs), list(graph.outputs), mode="NUMBA", trust_input=True
            )
            return function

        if form != "enabled":
            return compiled()
        with so.enabled():
            return compiled()

    def _compiled_by_jax(self) -> Callable[..., Any]:
        names, in_jax = list(self.values), self.in_jax
        wrt = tuple(map(names.index, self.wrt))
        assert in_jax is not None

        def cost(*arguments: Any) -> Any:
            return in_jax(**dict(zip(names, arguments, strict=True)))

        compiled = jax.jit(jax.value_and_grad(cost, wrt))

        def run(*arguments: Any) -> list[Any]:
            value, slopes = jax.block_until_ready(compiled(*arguments))
            return [value, *slopes]

        return run

    def _of_dtype(self, value: Any) -> np.ndarray:
        array = np.asarray(value)
        return array.astype(self.dtype) if array.dtype.kind == "f" else array

    def _shape(self, shape: tuple[int, ...]) -> tuple[int | None, ...]:
        return tuple(n if self.shapes_known and n < 100 else None for n in shape)
