"""P007: the mit_mots of gradients."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import ClassVar

from pytensor.graph.basic import Apply

from scanopt_cli.remarks import Code, Remark, Why
from scanopt_cli.rules.check_context import CheckContext
from scanopt_cli.rules.rule_contract import Finding, Fix, PassRule, Severity, named
from scanopt_cli.text import plural


class BackwardBuffers(PassRule):
    """A gradient writes into a buffer of all steps (a mit_mot), where one state would do.

    PyTensor's pullback of a Scan adds cotangents up in a buffer with a row of each step. It cannot
    be trimmed, and no rewriter of PyTensor's works on it::

        pt.grad(scan(step, outputs_info=[x], n_steps=n)[-1], x)

    The fix makes an ordinary state of it.

    A gradient of a gradient has four loops for each loop, one of order n has 2^n, or more. Tangents
    of one gradient have two, whatever the order: differentiate the loop itself by ``so.grad(graph,
    order=2)``, or ``scanopt grad --order 2``. It has no fix, since the graph no longer says what
    was differentiated. Where a derivative is infinite, tangents may be NaN.
    """

    code: ClassVar[str] = "P007"
    name: ClassVar[str] = "backward-buffers"
    severity: ClassVar[Severity] = Severity.WARNING
    fix: ClassVar[Fix] = Fix("remove-unused,clean-slices,mit-mot-to-sit-sot")
    codes: ClassVar[frozenset[str]] = frozenset({Code.MIT_MOT_REPLACED})

    def find(self, context: CheckContext) -> Iterator[Finding]:
        """Yield a finding for each loop with mit_mots, and for each with too many derivatives."""
        yield from super().find(context)
        families = _families(context)
        for loop in context.scans:
            derived = families.get(loop.view.node, ())
            order = max((generation for _, generation in derived), default=0)
            count = 1 + len(derived)
            if order > 1 and count >= 2**order and loop.view.op.truncate_gradient == -1:
                text = (
                    f"{count} loops for a derivative of order {order}: tangents of one gradient"
                    " take two (`scanopt grad --strategy forward-over-reverse`)"
                )
                yield self.at(context, loop, text, fix=None)

    def text(self, remarks: Sequence[Remark]) -> str:
        """Return the text of the finding."""
        return f"the gradient writes into a buffer of all steps: mit_mot {named(remarks)}"

    def doubt(self, remark: Remark) -> str | None:
        """Return the text for a mit_mot whose buffer may be too short for the steps."""
        if remark.reason is None or remark.reason.code != Why.BUFFER_SHORT:
            return None
        steps = remark.reason.fields["steps"]
        return (
            f"the gradient writes into a buffer of all steps, mit_mot {named([remark])}, if that "
            f"is long enough for {plural(str(steps), 'step')}"
        )


def _families(context: CheckContext) -> dict[Apply, list[tuple[Apply, int]]]:
    """Return the pullbacks of each loop, and of these, with how often each was differentiated."""
    families: dict[Apply, list[tuple[Apply, int]]] = defaultdict(list)
    for node, origin in context.origins.items():
        root, at = node, origin
        while at.parent is not None:
            root = at.parent
            at = context.origins[root]
        is_loop = at.generation == 0 and at.tangents_of is None
        if root is not node and origin.generation is not None and is_loop:
            families[root].append((node, origin.generation))
    return families
