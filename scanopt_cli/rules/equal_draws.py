"""R001: every step draws the same random numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from scanopt_cli.analysis.named_loops import NamedLoop
from scanopt_cli.analysis.same_draws import is_fixed_generator, is_handed_on
from scanopt_cli.ir.slots import Slot
from scanopt_cli.remarks import RemarkKind
from scanopt_cli.rules.check_context import CheckContext
from scanopt_cli.rules.rule_contract import Finding, Fix, Rule, Severity


class EqualDraws(Rule):
    """Every step draws the same random numbers, from a generator that it does not carry.

    A draw leaves its generator as it is, and returns the next one. A step that reads a generator as
    a non-sequence, and does not hand the next one to the step after it, draws the same each time::

        scan(lambda rng: pt.random.normal(rng=rng), non_sequences=[rng], n_steps=9)

    Carry it as a state::

        def step(rng):
            rng, draw = pt.random.normal(rng=rng, return_next_rng=True)
            return rng, draw

        scan(step, outputs_info=[rng, None], n_steps=9)

    The fix does, which changes what is drawn.
    """

    code: ClassVar[str] = "R001"
    name: ClassVar[str] = "equal-draws"
    severity: ClassVar[Severity] = Severity.ERROR
    fix: ClassVar[Fix | None] = Fix("carry-generators", is_safe=False)

    def find(self, context: CheckContext) -> Iterator[Finding]:
        """Yield a finding for each generator."""
        for loop in context.loops:
            for slot in loop.view.slots:
                name = loop.names[slot]
                if is_fixed_generator(loop.view, slot):
                    text = f"every step draws the same numbers from `{name}`, which is not carried"
                elif is_handed_on(loop.view, slot):
                    text = (
                        f"every step draws the same numbers from `{name}`, and hands on the "
                        "generator that it was given"
                    )
                else:
                    continue
                yield self.at(context, loop, text, slot, fix=carried(context, loop, slot))


def carried(context: CheckContext, loop: NamedLoop, *slots: Slot) -> Fix | None:
    """Return the fix that draws anew from the generators of ``slots``, if it can."""
    fix = EqualDraws.fix
    assert fix is not None
    mended = {
        name
        for remark in context.remarks(fix.passes)
        if remark.kind is RemarkKind.PASSED and remark.scan == loop.title
        for name in remark.slots
    }
    return fix if mended.issuperset(loop.names[slot] for slot in slots) and slots else None
