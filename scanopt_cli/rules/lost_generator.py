"""R003: nobody keeps the generator after the last step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant
from pytensor.tensor.random.type import RandomType

from scanopt_cli.ir.slots import STATES
from scanopt_cli.rules.rule_contract import CheckContext, Finding, Rule, Severity


class LostGenerator(Rule):
    """The generator after the last step is dropped, so that every call draws the same numbers.

    The loop carries a shared variable, or a constant, and nothing reads the generator that it ends
    with: neither an output nor an update of the shared variable::

        rng = pytensor.shared(np.random.default_rng(1))
        after, draws = scan(step, outputs_info=[rng, None], n_steps=9)
        pytensor.function([], draws)  # returns the same at each call

    Update the shared variable::

        pytensor.function([], draws, updates={rng: after})
    """

    code: ClassVar[str] = "R003"
    name: ClassVar[str] = "lost-generator"
    severity: ClassVar[Severity] = Severity.WARNING

    def find(self, context: CheckContext) -> Iterator[Finding]:
        """Yield a finding for each generator whose last state is dropped."""
        for loop in context.loops:
            for slot in loop.view.of_kind(*STATES):
                start = slot.outer_input
                is_kept = isinstance(start, SharedVariable | Constant) and isinstance(
                    start.type, RandomType
                )
                updated = getattr(start, "default_update", None) is not None
                if (
                    is_kept
                    and not updated
                    and not any(map(loop.graph.clients.get, slot.outer_outputs))
                ):
                    name = loop.names[slot]
                    text = f"nothing keeps `{name}` after the last step: each call draws the same"
                    yield self.at(context, loop, text, slot)
