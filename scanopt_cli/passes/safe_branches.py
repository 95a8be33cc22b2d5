"""Compute the branch that a switch does not select of an operand that is safe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph

from scanopt_cli.analysis.guards import guarded_operands
from scanopt_cli.ir.slots import SlotView
from scanopt_cli.pipeline.contract import PassContext
from scanopt_cli.pipeline.loop_passes import AnyLoopPass
from scanopt_cli.remarks import Code

# Each rewrite of a step looks for the next one anew.
_MOST = 100


@dataclass(frozen=True)
class SafeBranches(AnyLoopPass):
    """Compute the branch that a switch does not select of an operand that is safe.

    In ``switch(x > 0, sqrt(x), 0)``, the square root of 0 is computed and dropped. So is its
    derivative, by a factor of zero; but it is infinite, and zero times infinity is NaN. With
    ``sqrt(switch(x > 0, x, 1))`` in its place, both are finite.

    Legal cases: a branch of a switch in a step has, between the function and the switch nothing but
    elementwise arithmetic, and for an operand that is a number also sums, products and new axes,

    1. a logarithm, square root, reciprocal, or the inverse of a sine, cosine or tangent (also the
       hyperbolic ones that have a border);
    2. a division, for its divisor;
    3. a power of a constant exponent that is no positive integer, for its base.

    The condition is computed of the same variable as the function (``merge-equal`` makes equal ones
    the same) and of constants. It selects the other branch at a number where the derivative of the
    function is not finite, and may select this one at another number. That replaces the operand
    where the branch is not selected. A condition that compares ``a`` and ``b`` counts as one on the
    operand ``a - b``; a further condition may be joined by *and* or *or*.

    All values stay the same, to the last bit. Derivatives that are taken afterwards are other ones:
    numbers where they were NaN. So no preset has this pass. It takes Scans and TracedLoops.

    Preconditions: the operand is a float, and the condition has its shape. No step works in place.

    Out of scope: conditions on other values, functions outside of loops, and derivatives that were
    taken already.
    """

    name: ClassVar[str] = "safe-branches"
    accepts_in_place: ClassVar[bool] = False

    def rewrite(self, view: SlotView, context: PassContext) -> dict[Variable, Variable] | None:
        """Return replacements for all outputs, from a loop whose branches are safe."""
        if next(guarded_operands(view.inner_outputs()), None) is None:
            return None
        view.unfreeze()
        body = FunctionGraph(outputs=view.inner_outputs(), clone=False)
        count = 0
        while count < _MOST and (found := next(guarded_operands(body.outputs), None)) is not None:
            body.replace(found.switch.outputs[0], found.made_safe(), import_missing=True)
            count += 1
        context.passed(view, Code.OPERAND_GUARDED, count=count)
        view.set_inner_outputs(list(body.outputs))
        return view.rebuild()
