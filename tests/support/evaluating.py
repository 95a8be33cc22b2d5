"""Evaluate graphs as they are: no rewriting that could hide or add a difference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache

import numpy as np
import pytensor
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Variable
from pytensor.graph.rewriting.basic import GraphRewriter
from pytensor.graph.traversal import io_toposort


class _PlainMode(Mode):
    """Puts the few rewrites that PyTensor requires together once, not for each compilation."""

    @cached_property
    def optimizer(self) -> GraphRewriter:
        return super().optimizer


PLAIN = _PlainMode(linker="vm", optimizer=None)
"""The virtual machine in Python, which runs preallocated mit-mots, and no optional rewrite."""

type Outcome = np.ndarray | Exception


def evaluate(
    inputs: Sequence[Variable], outputs: Sequence[Variable], arguments: Sequence[np.ndarray]
) -> list[Outcome]:
    """Return the value of each output, or the exception that computing it raises."""
    links = tuple((node, *node.inputs) for node in io_toposort(inputs, outputs))
    return _evaluator_of(tuple(inputs), tuple(outputs), links)(arguments)


@lru_cache(maxsize=8)
def _evaluator_of(
    inputs: tuple[Variable, ...], outputs: tuple[Variable, ...], links: tuple[object, ...]
) -> Callable[[Sequence[np.ndarray]], list[Outcome]]:
    """Compile a graph once for all arguments, unless it is changed: ``links`` are its edges."""
    return evaluator(inputs, outputs)


def evaluator(
    inputs: Sequence[Variable], outputs: Sequence[Variable]
) -> Callable[[Sequence[np.ndarray]], list[Outcome]]:
    """Compile once what `evaluate` does, to run on many argument tuples."""
    every = _compile(inputs, outputs)

    def run(arguments: Sequence[np.ndarray]) -> list[Outcome]:
        try:
            with np.errstate(all="ignore"):
                return list(every(*arguments))
        except Exception as error:
            if len(outputs) == 1:
                return [error]
        return [evaluate(inputs, [output], arguments)[0] for output in outputs]

    return run


def assert_same_outcomes(
    expected: Sequence[Outcome], actual: Sequence[Outcome], *, rtol: float = 1e-9
) -> None:
    """Check values within ``rtol``, NaN equal to NaN; dtypes and shapes; exceptions by type."""
    assert len(actual) == len(expected)
    for position, (wanted, got) in enumerate(zip(expected, actual, strict=True)):
        where = f"output {position}: expected {wanted!r}, got {got!r}"
        if isinstance(wanted, Exception) or isinstance(got, Exception):
            assert type(got) is type(wanted), where
            continue
        wanted, got = np.asarray(wanted), np.asarray(got)
        assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape), where
        np.testing.assert_allclose(got, wanted, rtol=rtol, atol=1e-12, err_msg=where)


def _compile(
    inputs: Sequence[Variable], outputs: Sequence[Variable]
) -> Callable[..., list[np.ndarray]]:
    return pytensor.function(
        list(inputs), list(outputs), mode=PLAIN, on_unused_input="ignore", trust_input=True
    )


def has_unknown_shape(old: object, new: object) -> bool:
    """Whether a Scan of no steps, or a sum of it, has lengths 0 where a loop knows them."""
    if not isinstance(old, np.ndarray) or not isinstance(new, np.ndarray):
        return False
    if old.ndim != new.ndim or old.shape == new.shape:
        return False
    return all(length in (0, known) for length, known in zip(old.shape, new.shape, strict=True))
