"""P010: operations that stay on arrays, or in Python."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any, ClassVar

from pytensor.conditional.op import IfElse
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.scalar.basic import ScalarOp
from pytensor.tensor.elemwise import CAReduce, DimShuffle, Elemwise
from pytensor.tensor.math import Dot
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.subtensor import IncSubtensor, Subtensor

from scanopt_cli.analysis.named_loops import NamedLoop
from scanopt_cli.ir.inner_graphs import core_op, inner_graphs
from scanopt_cli.passes.of_traced_loops.unroll_small.unroll_small import UnrollSmall
from scanopt_cli.rules.check_context import CheckContext
from scanopt_cli.rules.finding_costs import work
from scanopt_cli.rules.lowered_loops import elements
from scanopt_cli.rules.rule_contract import Finding, Rule, Severity
from scanopt_cli.text import plural

_SMALL = UnrollSmall.size
"""The most entries of arrays of which ``unroll-small`` makes numbers, unless it is told so."""
_WITH_CODE = (
    *(Elemwise, CAReduce, DimShuffle, Dot, Subtensor, IncSubtensor, IfElse),
    *(Reshape, Shape, Shape_i, SpecifyShape),
)
"""Ops of which it is known, without a look at Numba, that it compiles them."""


class ArraysInSteps(Rule):
    """A step calls Python, or computes on small arrays of which no pass makes numbers.

    A step on numbers, or on small arrays in registers, takes some nanoseconds. An Op that
    PyTensor's Numba backend does not implement runs in Python ("object mode") in each step, which
    takes microseconds. Some others, such as a sort, are calls, and allocate memory, for less work
    than that takes where arrays have a few entries::

        scan(lambda s: my_op(s), outputs_info=[x], n_steps=n)  # my_op has no numba_funcify
        scan(lambda s: pt.sort(s), outputs_info=[x])  # of two: pt.stack([s.min(), s.max()])

    Register the Op with Numba (``pytensor.link.numba.dispatch``), or compute before or after the
    loop what it does. Write what is done with arrays of up to 16 entries as arithmetic, sums and
    products: ``scanopt passes unroll-small`` lists what becomes numbers, or stays in registers.

    Larger arrays are no finding, since numbers would not pay; nor are those of unknown shapes, of
    which P009 tells if knowing them helps, and steps that decompose matrices, or solve by them in a
    way of which no pass makes numbers. What merely moves entries is not counted. Whether Numba has
    code for an Op is looked up in its registry.
    """

    code: ClassVar[str] = "P010"
    name: ClassVar[str] = "arrays-in-steps"
    severity: ClassVar[Severity] = Severity.NOTE

    def find(self, context: CheckContext) -> Iterator[Finding]:
        """Yield at most one finding for each loop."""
        for loop in context.loops:
            nodes = [n for n in loop.view.op.fgraph.toposort() if runs_in_python(n.op)]
            if nodes:
                names = ", ".join(dict.fromkeys(f"`{_name(node.op)}`" for node in nodes))
                text = f"each step calls Python: Numba has no code for {names}"
                yield self.at(context, loop, text, cost=_calls(nodes))
            elif (found := self._small(context, loop)) is not None:
                yield found

    def _small(self, context: CheckContext, loop: NamedLoop) -> Finding | None:
        lowered = context.lowered.get(loop.title)
        if lowered is None or lowered.runs_on_numbers or lowered.lacks_lengths or lowered.solves:
            return None
        if max(elements(operation) or _SMALL + 1 for operation in lowered.arrays) > _SMALL:
            return None
        text = "each step computes on small arrays, of which no pass makes numbers"
        listed = ", ".join(f"`{operation}`" for operation in lowered.arrays)
        return self.at(context, loop, f"{text}: {listed}", cost=work(loop))


def runs_in_python(op: Op) -> bool:
    """Whether PyTensor's Numba backend has no code for an Op, and calls Python."""
    op = core_op(op)
    if isinstance(op, Elemwise):
        return _is_python_function(op.scalar_op)
    if inner_graphs(op) or isinstance(op, _WITH_CODE):
        return False
    from pytensor.link.numba.dispatch.basic import numba_funcify

    return bool(numba_funcify.dispatch(type(op)) is numba_funcify.dispatch(object))


def _is_python_function(op: Any) -> bool:
    """Whether a function of numbers is none that Numba knows, nor one of SciPy's in C."""
    module, _, name = (getattr(op, "nfunc_spec", None) or ("?.",))[0].rpartition(".")
    if not module:  # one of NumPy's
        return False
    from pytensor.link.numba.dispatch.basic import numba_funcify

    if numba_funcify.dispatch(type(op)) is not numba_funcify.dispatch(ScalarOp):
        return False
    return not (
        module == "scipy.special" and hasattr(import_module(f"{module}.cython_special"), name)
    )


def _calls(nodes: list[Apply]) -> str:
    return f"{plural(len(nodes), 'call')} of Python a step"


def _name(op: Op) -> str:
    op = core_op(op)
    return type(op.scalar_op if isinstance(op, Elemwise) else op).__name__
