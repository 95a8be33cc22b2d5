"""N003: a state of one precision, and steps of another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from scanopt_cli.analysis.named_loops import NamedLoop
from scanopt_cli.analysis.single_precision import computed_in
from scanopt_cli.ir.slots import STATES, Slot
from scanopt_cli.passes.match_precision import matching_slots
from scanopt_cli.rules.check_context import CheckContext
from scanopt_cli.rules.rule_contract import Finding, Fix, Rule, Severity


class MixedPrecision(Rule):
    """A state is float32 and the step computes in float64, or the reverse, and casts at each step.

    The digits that float64 gives are dropped at each step, and each step pays for the casts::

        scan(lambda s: (s * np.float64(0.9)).astype("float32"), outputs_info=[x32])

        scan(lambda s: s * np.float32(0.9), outputs_info=[x32])

    Give the state and what the step reads one dtype. The fix does the step in float32 where that
    keeps all values, to the last bit: where one operation that rounds is between numbers that
    float32 holds and the cast. Elsewhere it carries the state in float64, which changes last
    digits.
    """

    code: ClassVar[str] = "N003"
    name: ClassVar[str] = "mixed-precision"
    severity: ClassVar[Severity] = Severity.WARNING
    fix: ClassVar[Fix | None] = Fix("match-precision{exact=false}", is_safe=False)
    exact_fix: ClassVar[Fix] = Fix("match-precision")

    def find(self, context: CheckContext) -> Iterator[Finding]:
        """Yield a finding for each state whose next value is a cast of another precision."""
        for loop in context.loops:
            for slot in loop.view.of_kind(*STATES):
                for output in slot.inner_outputs:
                    computed = computed_in(output)
                    if computed is not None:
                        name, kind = loop.names[slot], output.type.dtype
                        text = (
                            f"the state `{name}` is {kind}, and each step computes it in {computed}"
                        )
                        yield self.at(context, loop, text, slot, fix=self._fix_of(loop, slot))

    def _fix_of(self, loop: NamedLoop, slot: Slot) -> Fix | None:
        """Return the pass that makes a state and its steps match; one that keeps values, if any."""
        place = loop.view.slots.index(slot)
        if place in matching_slots(loop.view, loop.clients, exact=True):
            return self.exact_fix
        return self.fix if place in matching_slots(loop.view, loop.clients, exact=False) else None
