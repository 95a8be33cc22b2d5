"""What a definition of sameness says of values, Ops, graphs and loops: `sameness` has it.

The modules that ask it are those that it is made of, so they know it by this protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.fg import AbstractFunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.type import Type

from scanopt_cli.ir.slots import SlotView


@dataclass(frozen=True, slots=True)
class LoopForm:
    """The canonical form of a loop that is not applied to anything.

    Attributes
    ----------
    key
        Identifies what the loop computes, whatever feeds it.
    signatures
        Those of the slots, in the view's order.
    ranks
        The place of each slot in the canonical order.
    has_ties
        Whether slots share a signature: only their outer inputs can distinguish them.
    size
        The number of nodes in the body.
    """

    key: bytes
    signatures: tuple[bytes, ...]
    ranks: tuple[int, ...]
    has_ties: bool
    size: int

    @property
    def order(self) -> list[int]:
        """The slots in the canonical order, by their places in the view."""
        return sorted(range(len(self.ranks)), key=self.ranks.__getitem__)


class Definition(Protocol):
    """One definition of when two things compute the same; see `Sameness`."""

    names: bool
    exact: bool
    in_order: bool
    opaque: list[str]
    by_state: list[str]
    depth: int

    def key(self, tag: str, *content: Any) -> bytes:
        """Return the key of any values, which may be keys of other things."""

    def of_output(self, op: bytes, inputs: Sequence[bytes], position: int) -> bytes:
        """Return the key of an output of a node."""

    def data(self, array: np.ndarray) -> bytes:
        """Return bytes that represent the content of an array."""

    def of_type(self, kind: Type) -> bytes:
        """Return the key of a Type."""

    def of_constant(self, constant: Constant) -> bytes:
        """Return the key of a constant."""

    def of_op(self, op: Op) -> bytes:
        """Return the key of what an Op computes."""

    def of_graph(self, graph: AbstractFunctionGraph) -> bytes:
        """Return the key of a whole graph."""

    def form(self, op: Op) -> LoopForm:
        """Return the canonical form of a loop."""

    def of_loop(self, of: Callable[[Variable], bytes], view: SlotView) -> dict[Variable, bytes]:
        """Return the key of each output of an applied loop, from those of its inputs."""

    def of_loop_at_a_glance(
        self, of: Callable[[Variable], bytes], view: SlotView
    ) -> dict[Variable, bytes]:
        """Return keys that differ only where those of `of_loop` do, without a look inside."""

    def may_look_into(self, nodes: int) -> bool:
        """Count nodes of a body that are to be visited again; return whether they may be."""
