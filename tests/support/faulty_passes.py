"""Passes of which the third rewrite goes wrong, each in a way of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor.elemwise import Elemwise

from scanopt_cli.pipeline.contract import Pass, PassContext, Rewrite
from scanopt_cli.remarks import Code

FAULTY = 3
"""Which rewrite goes wrong, counted from 1."""


@dataclass(frozen=True)
class SplitTanh(Pass):
    """Replace each tanh in a body by the quotient of sinh and cosh."""

    name: ClassVar[str] = "split-tanh"
    everywhere: ClassVar[bool] = True

    def rewrites(self, context: PassContext) -> Iterator[Rewrite]:
        """Rewrite one tanh after the other."""
        found = [
            node
            for node in context.fgraph.toposort()
            if isinstance(node.op, Elemwise) and str(node.op.scalar_op) == "tanh" and context.path
        ]
        for number, node in enumerate(found, 1):
            (x,), (old,) = node.inputs, node.outputs
            new = pt.sinh(x) / pt.cosh(x)
            context.passed(None, Code.NOTE, text=f"tanh {number}")
            yield Rewrite({old: self.faulty(new) if number == FAULTY else new})

    def faulty(self, new: Any) -> Any:
        """Return what the third tanh becomes."""
        return new


@dataclass(frozen=True)
class Inexact(SplitTanh):
    """One quotient is wrong by a factor."""

    name: ClassVar[str] = "inexact"

    def faulty(self, new: Any) -> Any:
        """Return another value."""
        return new * np.asarray(1.001, dtype=new.dtype)


@dataclass(frozen=True)
class Crashing(SplitTanh):
    """One rewrite ends the process."""

    name: ClassVar[str] = "crashing"

    def faulty(self, new: Any) -> Any:
        """End the process without a word."""
        os._exit(3)


@dataclass(frozen=True)
class Raising(SplitTanh):
    """One rewrite gives another type."""

    name: ClassVar[str] = "raising"

    def faulty(self, new: Any) -> Any:
        """Return a vector in place of a number."""
        return new[None]


@dataclass(frozen=True)
class Hungry(SplitTanh):
    """One rewrite takes more memory than there is."""

    name: ClassVar[str] = "hungry"

    def faulty(self, new: Any) -> Any:
        """Take 64 GB."""
        np.ones(8 << 30)
        return new


@dataclass(frozen=True)
class Slowing(SplitTanh):
    """One rewrite adds work of milliseconds to each step, and no value."""

    name: ClassVar[str] = "slowing"
    numbers: ClassVar[int] = 1_000_000

    def faulty(self, new: Any) -> Any:
        """Add a sum of many numbers, times zero."""
        many = pt.cumsum(pt.alloc(new, self.numbers))[-1]
        return new + many * np.asarray(1e-300, dtype=new.dtype)


@dataclass(frozen=True)
class Swelling(Slowing):
    """One rewrite lets each step take 240 MB."""

    name: ClassVar[str] = "swelling"
    numbers: ClassVar[int] = 30_000_000
