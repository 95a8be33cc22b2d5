"""R003: nobody keeps the generator after the last step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.type import RandomType

from scanopt_cli.analysis.named_loops import NamedLoop
from scanopt_cli.ir.slots import STATES, Slot
from scanopt_cli.rules.check_context import CheckContext
from scanopt_cli.rules.rule_contract import Finding, Rule, Severity


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
        for loop, slot in _dropped(context):
            if isinstance(slot.outer_input, SharedVariable | Constant):
                name = loop.names[slot]
                text = f"nothing keeps `{name}` after the last step: each call draws the same"
                yield self.at(context, loop, text, slot)

    def suspects(self, context: CheckContext) -> Iterator[Finding]:
        """Yield a finding for each such generator that the caller gives."""
        for loop, slot in _dropped(context):
            if slot.outer_input in context.fgraph.inputs and not isinstance(
                slot.outer_input, SharedVariable
            ):
                text = (
                    f"nothing keeps `{loop.names[slot]}` after the last step: calls draw the same, "
                    "if they are given the same generator"
                )
                yield self.at(context, loop, text, slot)


def _dropped(context: CheckContext) -> Iterator[tuple[NamedLoop, Slot]]:
    """Yield the states that are generators, of which nothing reads the last value.

    Not those whose first value another draw moves on, in an output of the graph.
    """
    generators = [v for v in context.fgraph.outputs if isinstance(v.type, RandomType)]
    moved_on = set(ancestors(generators))
    for loop in context.loops:
        for slot in loop.view.of_kind(*STATES):
            start = slot.outer_input
            is_read = any(map(loop.graph.clients.get, slot.outer_outputs))
            updated = getattr(start, "default_update", None) is not None
            if isinstance(start.type, RandomType) and not (is_read or updated or start in moved_on):
                yield loop, slot
