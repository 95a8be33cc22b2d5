"""N003: a state of one precision, and steps of another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from pytensor.graph.basic import Variable
from pytensor.scalar.basic import Cast
from pytensor.tensor.elemwise import Elemwise

from scanopt_cli.ir.slots import STATES
from scanopt_cli.rules.check_context import CheckContext
from scanopt_cli.rules.rule_contract import Finding, Rule, Severity


class MixedPrecision(Rule):
    """A state is float32 and the step computes in float64, or the reverse, and casts at each step.

    The digits that float64 gives are dropped at each step, and each step pays for the casts::

        scan(lambda s: (s * np.float64(0.9)).astype("float32"), outputs_info=[x32])

    Give the state and what the step reads one dtype.
    """

    code: ClassVar[str] = "N003"
    name: ClassVar[str] = "mixed-precision"
    severity: ClassVar[Severity] = Severity.WARNING

    def find(self, context: CheckContext) -> Iterator[Finding]:
        """Yield a finding for each state whose next value is a cast of another precision."""
        for loop in context.loops:
            for slot in loop.view.of_kind(*STATES):
                for output in slot.inner_outputs:
                    computed = _before_cast(output)
                    if computed is not None:
                        name, kind = loop.names[slot], output.type.dtype
                        text = (
                            f"the state `{name}` is {kind}, and each step computes it in {computed}"
                        )
                        yield self.at(context, loop, text, slot)


def _before_cast(output: Variable) -> str | None:
    """Return the precision in which a value is computed before it is cast to another one."""
    node = output.owner
    if node is None or not isinstance(node.op, Elemwise) or not isinstance(node.op.scalar_op, Cast):
        return None
    before, after = node.inputs[0].type.dtype, output.type.dtype
    is_float = before.startswith("float") and after.startswith("float")
    # A step that reads a float64 as it is, and returns it as a float32, does no arithmetic.
    return before if is_float and before != after and node.inputs[0].owner is not None else None
