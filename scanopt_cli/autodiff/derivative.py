"""What `grad` returns: the graph of each order, counted, with its pedigree."""

from __future__ import annotations

from dataclasses import dataclass, field

from scanopt_cli.analysis.statistics import Statistics
from scanopt_cli.autodiff.checking import Check
from scanopt_cli.autodiff.provenance.pedigree import Pedigree
from scanopt_cli.autodiff.stages import StageReport
from scanopt_cli.autodiff.strategies import Strategy
from scanopt_cli.ir.graph import Graph


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderReport:
    """The derivative of one order; order 0 is what is differentiated.

    Attributes
    ----------
    order
        Which derivative.
    statistics
        What is in its graph, as it was built.
    stages
        What is in it after PyTensor or scanopt, where that was asked for.
    pedigree
        Where the Scans of its graph come from.
    graph
        Its graph, with the inputs of the original; the outputs are those of the order, one for each
        input that is differentiated by.
    """

    order: int
    statistics: Statistics
    stages: tuple[StageReport, ...] = ()
    pedigree: Pedigree
    graph: Graph = field(repr=False, metadata={"as_json": False})


@dataclass(frozen=True, slots=True, kw_only=True)
class Derivative:
    """The derivatives of one output of a graph, from order 0 to the one that was asked for.

    Attributes
    ----------
    output
        The name of the output.
    wrt
        The names of the inputs that it is differentiated by (``#3`` for one without a name).
    strategy, reason
        How it was built, and why that way.
    full
        Whether the last order is a whole Hessian.
    orders
        One report an order, the graph itself first.
    notes
        What a reader should know about what was computed, one sentence each.
    check
        How its values compare with another strategy's, where that was asked for.
    compared
        The same derivative by other strategies, where these are compared.
    """

    output: str
    wrt: tuple[str, ...]
    strategy: Strategy
    reason: str
    full: bool = False
    orders: tuple[OrderReport, ...]
    notes: tuple[str, ...] = ()
    check: Check | None = None
    compared: tuple[Derivative, ...] = ()

    @property
    def graph(self) -> Graph:
        """The derivative itself: the inputs of the original, one output for each of ``wrt``."""
        return self.orders[-1].graph

    @property
    def every(self) -> tuple[Derivative, ...]:
        """This derivative and those that are compared with it."""
        return (self, *self.compared)

    @property
    def pedigree(self) -> Pedigree:
        """The pedigree of the derivative itself."""
        return self.orders[-1].pedigree

    def show(self, name: str) -> str:
        """Return one Scan of the derivative as text, by its name in the pedigree.

        Raises
        ------
        GradientError
            If no Scan has that name.
        """
        return self.pedigree.show(name)
