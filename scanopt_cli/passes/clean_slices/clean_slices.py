"""Write slices plainly, and read rows where they come from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph

from scanopt_cli.ir.constants import has_negative_zero
from scanopt_cli.ir.levels import IfElse
from scanopt_cli.passes.clean_slices.always_before import Ahead, Attempt
from scanopt_cli.passes.clean_slices.facts import Facts
from scanopt_cli.passes.clean_slices.lengths_of_outputs import counted
from scanopt_cli.passes.clean_slices.plain_reads import behind_write, element, merged
from scanopt_cli.passes.clean_slices.plain_writes import nested, plainer, started, whole
from scanopt_cli.pipeline.contract import Pass, PassContext
from scanopt_cli.text import plural

# What a rewrite frees comes after it in a sweep, but for a few.
_SWEEPS = 20

type _Rule = Callable[[Apply, Facts], Variable | None]

_RULES: tuple[tuple[str, str, _Rule], ...] = (
    ("counted {} by the steps", "length", counted),
    ("did without {} where all of it is written", "buffer", whole),
    ("wrote {} into zeros to where they end up", "value", nested),
    ("made {} plain", "write", plainer),
    ("filled {} at once", "short start", started),
    ("did without {} by reading what was written there", "slice", behind_write),
    ("made {} plain", "slice", merged),
    ("took {} for a sum or an axis of length 1", "row", element),
)


@dataclass(frozen=True)
class CleanSlices(Pass):
    """Write slices plainly, read rows where they come from, and do without needless buffers.

    Legal cases, each along one axis:

    1. A slice of slices is one slice, or an index of slices one index, where the lengths show which
       rows it takes: ``x[:-1][::-1][:4]`` of 5 rows is ``x[3::-1]``, two reversals cancel, and a
       slice that takes everything goes. Where one end counts, any length will do:
       ``x[::-1][:3]`` and ``x[-3:][::-1]`` are ``x[:-4:-1]``, ``x[::-1][i]`` is ``x[-1-i]``.
    2. This goes for the sequences of a Scan and for what reads its results, as for all else.
    3. A slice, of a read or of a write, with bounds that say less than they could is written
       plainly: ``x[3:-6:-1]`` of 5 rows is ``x[3::-1]``. No other form is exchanged for another.
       Known bounds count from the start, other than that the last row is ``-1``; else they
       count from the end where that makes them numbers.
    4. Writes into zeros: a value that is written into zeros which are themselves written into zeros
       goes where it ends up (``z[1:].inc(z[-1].inc(v))`` is ``z[-1].inc(v)``), through slices and
       reversals too, along any axis. Zeros of which everything is written are the value, repeated
       where it was broadcast.
    5. A buffer of which every row is set is what is set. Rows that are read back from a buffer are
       what was written there, if all of them were; what was there before, if none was; or the
       value that all rows have. A row that is written or read goes without the axis that was put
       in for it.
    6. A sum over an axis of length 1, or such an axis dropped, is the element.
    7. A length that is computed from a loop's output is the loop's step count and a number.
    8. The start of a loop's state of at most 8 rows in all, ``AllocEmpty(5)[:1].set(h0)``, is
       ``Alloc(h0, 5)``: without the write and the axis put in for ``h0``.

    Preconditions: lengths are known as affine expressions, and each comparison of them is proved;
    what is not is left alone. So an index out of bounds stays an error, 0 rows stay 0 rows, and for
    a symbolic step count ``n`` the read ``x[1:][-1]`` stays as it is, since ``n`` may be 0; what
    depends on such a read is rewritten, since it only runs where that did not fail. A written value
    that is read back has the shape of what it is written to, or is one number; none is cast.
    Nothing in the graph works in place. Steps are 1 or -1.

    ``0.0 + x`` is taken for ``x``, as PyTensor does: a ``-0.0`` that is added to zeros, or summed
    over a length of 1, stays ``-0.0``, and was ``0.0`` before. What is not read any more does not
    raise any more: an error in a row that is not read, or in a loop of which only the length was
    read, goes with it.

    One row is never read backwards, and a slice never starts at the end and goes back to a row
    whose distance is not known: of a known length, PyTensor reads ``x[:-2:-1].sum()`` as ``x[0]``.
    For the same reason lengths that are known here are not put on types: a loop's output of static
    length would let PyTensor misread the slices that are not rewritten, such as ``x[:-3:-2]``. Its
    own rewrites of loops would put a SpecifyShape in where they make a loop anew.

    The start of a long loop's state keeps its form, axis put in for ``h0`` included. PyTensor's
    memory saving looks for it: for ``[0].set(h0)`` it keeps all rows, on ``[:1].set(h0)`` it fails,
    and filling all rows would cost time.

    Out of scope: advanced indices, slices of several axes at once, indices that differ within a
    batch (a Blockwise of slices), and rows read back along other axes than the first.
    """

    name: ClassVar[str] = "clean-slices"
    everywhere: ClassVar[bool] = True

    def run(self, context: PassContext) -> bool:
        """Rewrite ``context.fgraph`` node by node, until nothing changes."""
        if context.is_in_place("cleaned"):
            return False
        done: Counter[int] = Counter()
        for _ in range(_SWEEPS):
            swept = _Sweep(context).run()
            if not swept:
                break
            done += swept
        for place, count in sorted(done.items()):
            told, what, _ = _RULES[place]
            context.changed(None, told.format(plural(count, what)))
        return bool(done)


class _Sweep:
    """One walk over a graph, from the inputs to the outputs.

    What a rule makes of a node is tried at once, and what reads the node comes later in the walk:
    a chain of slices takes one sweep, not one a link.
    """

    def __init__(self, context: PassContext) -> None:
        self._site = context
        self._fgraph: FunctionGraph = context.fgraph
        self._ahead = Ahead()
        self._done: Counter[int] = Counter()

    def run(self) -> Counter[int]:
        """Try every rule on each node, and return how often each was used."""
        for node in self._fgraph.toposort():
            todo = [node]
            while todo:
                new = self._try(todo.pop())
                if new is not None:
                    todo += reversed(new)
            if not self._site.budget.is_left:
                break
        return self._done

    def _try(self, node: Apply) -> list[Apply] | None:
        """Rewrite a node; return the nodes that came for it, in topological order."""
        attempts = self._ahead.of(node)
        if node not in self._fgraph.apply_nodes or len(node.outputs) != 1:
            return None
        found = self._rewritten(node, attempts)
        if found is None or not self._site.budget.spend():
            return None
        place, new = found
        if new not in self._fgraph.variables:
            new.name = node.outputs[0].name
        fresh = [part.owner for part in self._fresh(new) if part.owner is not None]
        self._fgraph.replace_all([(node.outputs[0], new)], reason=CleanSlices.name)
        self._done[place] += 1
        return fresh

    def _rewritten(self, node: Apply, attempts: list[Attempt]) -> tuple[int, Variable] | None:
        """What a rule makes of a node, and which one."""
        for attempt in attempts:
            for place, (_, _, rule) in enumerate(_RULES):
                new = rule(node, attempt.facts)
                if new is None or not self._fits(node.outputs[0], new):
                    continue
                if attempt.read is None or _needs(new, attempt.read):
                    return place, new
        return None

    def _fits(self, old: Variable, new: Variable) -> bool:
        """Whether ``new`` may stand for ``old``: its type, and what it is made of."""
        if new is old or not old.type.is_super(new.type) or has_negative_zero(new):
            return False
        is_result = bool(self._site.path) and old in self._fgraph.outputs
        if is_result and new.type != old.type:
            # What a body returns has the type that the loop around it expects.
            return False
        fresh = self._fresh(new)
        return all(isinstance(part, Constant) for part in fresh if part.owner is None)

    def _fresh(self, new: Variable) -> list[Variable]:
        """What the graph does not have yet of all that ``new`` is made of, in topological order."""
        known = self._fgraph.variables
        found: dict[Variable, None] = {}
        todo = [new]
        while todo:
            part = todo[-1]
            inputs = () if part.owner is None else part.owner.inputs
            before = [other for other in inputs if other not in known and other not in found]
            if part in known or part in found or not before:
                todo.pop()
                if part not in known:
                    found[part] = None
            else:
                todo += before
        return list(found)


def _needs(variable: Variable, read: Variable) -> bool:
    """Whether ``variable`` is only computed where ``read`` is."""
    seen: set[Variable] = set()
    todo = [variable]
    while todo:
        part = todo.pop()
        if part is read:
            return True
        # An IfElse may not need all that it is computed from.
        if part in seen or part.owner is None or isinstance(part.owner.op, IfElse):
            continue
        seen.add(part)
        todo += part.owner.inputs
    return False
