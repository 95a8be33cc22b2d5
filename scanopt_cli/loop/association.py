"""Reassociation of the sums and products of a step on numbers.

PyTensor writes nested sums and products as one of many terms, in an order that says nothing of how
they are computed: ``c * x``, ``c * x * y`` and ``c * x * y * z`` are three products. Here

- what depends on no state is computed first, and what takes long to compute of the states last, so
  that a step waits as briefly as possible for the step before it: for ``c``, a state, the last
  product is ``(x * y * z) * c``. What a sum adds to a state is added up before;
- what several sums or products begin with is computed once: ``x``, ``x * y``, ``x * y * z``. For
  that, their terms are ordered by how many have them, as in a frequent pattern tree (Han, Pei and
  Yin 2000).

The last digits may differ from those of another order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Any

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.scalar.basic import Add, Composite, Mul, ScalarType, Sub

from scanopt_cli.loop.products import is_float


def reassociate(body: FunctionGraph, n_states: int) -> None:
    """Order the terms of sums and products of numbers in the body of a loop."""
    states = body.inputs[1 : 1 + n_states]
    varying = set(states)
    for node in body.toposort():
        outputs: Sequence[Variable] = node.outputs
        op: Any = node.op
        if isinstance(op, Composite):
            inner = op.fgraph.unfreeze()  # type: ignore[attr-defined]
            pairs = list(zip(node.inputs, inner.inputs, strict=True))
            inside = dict(pairs)
            carried = {
                own: inside[state]
                for own, outer in zip(inner.outputs, outputs, strict=True)
                for state, new in zip(states, body.outputs, strict=False)
                if new is outer and state in inside
            }
            depending = [own for outer, own in pairs if outer in varying]
            ordered = _Ordering.of(inner, depending, carried).rebuilt(inner)
            if ordered is not None:
                outputs = type(op)(inner.inputs, ordered).make_node(*node.inputs).outputs
                body.replace_all(list(zip(node.outputs, outputs, strict=True)))
        if not varying.isdisjoint(node.inputs):
            varying.update(outputs)


def has_only_totals(body: Any, n_states: int) -> bool:
    """Whether the numbers among the states are sums and products that a step only adds to.

    What a compiler may reorder then, to add up several terms at once. Other states wait for one
    another in the order that `reassociate` has found.
    """
    return all(
        _is_total(body, old, new)
        for old, new in zip(body.inputs[1 : 1 + n_states], body.outputs, strict=False)
        if isinstance(old.type, ScalarType)
    )


def _is_total(graph: Any, old: Variable, new: Variable) -> bool:
    """Whether a value is a sum or a product of another, and either is read nowhere else."""
    read = [v for node in graph.apply_nodes for v in node.inputs] + list(graph.outputs)
    node = new.owner
    if node is None or read.count(old) != 1 or read.count(new) != 1 or old not in node.inputs:
        return False
    op: Any = node.op
    if isinstance(op, Composite):
        inside = op.fgraph
        own = inside.inputs[node.inputs.index(old)]
        return _is_total(inside, own, inside.outputs[node.outputs.index(new)])
    return isinstance(op, Add | Mul) or (isinstance(op, Sub) and old is node.inputs[0])


type Term = tuple[Variable, int]
"""A variable, and how many times the sum or product has it before."""


@dataclass(slots=True)
class _Prefix:
    """What some sums or products begin with: a path in a tree of terms."""

    terms: list[Variable] = field(default_factory=list)
    """The variables that follow those of the nearest prefix above it that is computed."""
    above: _Prefix | None = None
    children: dict[Term, _Prefix] = field(default_factory=dict)
    n_ends: int = 0
    """How many sums or products it is the whole part of that depends on no state."""
    value: Variable | None = None

    @property
    def is_computed(self) -> bool:
        """Whether several sums or products go on from here."""
        return len(self.children) + self.n_ends > 1


@dataclass(slots=True)
class _Ordering:
    """The sums and products of a graph, and the terms that they begin with."""

    depth: Mapping[Variable, int]
    """How many operations after the states a variable is computed, if it depends on them."""
    states: Mapping[Variable, int]
    """On which states it depends, as bits."""
    carried: Mapping[Variable, Variable]
    """The states of which variables are the next values."""
    ends: dict[Apply, _Prefix] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        graph: FunctionGraph,
        varying: Collection[Variable],
        carried: Mapping[Variable, Variable],
    ) -> _Ordering:
        """Return the order for a graph, of which some inputs depend on states."""
        nodes = graph.toposort()
        depth = dict.fromkeys(varying, 1)
        states = {v: 1 << i for i, v in enumerate(varying)}
        for node in nodes:
            depending = [v for v in node.inputs if v in depth]
            if depending:
                deepest = max(depth[v] for v in depending)
                depth |= dict.fromkeys(node.outputs, deepest + 1)
                every = reduce(or_, (states[v] for v in depending))
                states |= dict.fromkeys(node.outputs, every)
        made = cls(depth, states, carried)
        groups: dict[tuple[type, str], list[Apply]] = {}
        for node in nodes:
            if isinstance(node.op, Add | Mul) and is_float(node):
                key = type(node.op), node.outputs[0].type.dtype
                groups.setdefault(key, []).append(node)
        for group in groups.values():
            made._add(group)
        return made

    def _add(self, nodes: Sequence[Apply]) -> None:
        """Put the sums, or the products, into a tree."""
        terms = {node: self._free_terms(node) for node in nodes}
        counts = Counter(term for each in terms.values() for term in each)
        place = {term: i for i, term in enumerate(counts)}
        root = _Prefix()
        for node, each in terms.items():
            prefix = root
            for term in sorted(each, key=lambda term: (-counts[term], place[term])):
                prefix = prefix.children.setdefault(term, _Prefix([term[0]], prefix))
            prefix.n_ends += 1
            self.ends[node] = prefix

    def _free_terms(self, node: Apply) -> list[Term]:
        """Return the terms that depend on no state."""
        seen: Counter[Variable] = Counter()
        found = []
        for variable in node.inputs:
            if variable not in self.depth:
                found.append((variable, seen[variable]))
                seen[variable] += 1
        return found

    def rebuilt(self, graph: FunctionGraph) -> list[Variable] | None:
        """Return the outputs of a graph, computed in this order; ``None`` if nothing changes."""
        new: dict[Variable, Variable] = {}
        for node in graph.toposort():
            inputs = [new.get(v, v) for v in node.inputs]
            if node in self.ends:
                made = self._ordered(node, new)
                if made != inputs:
                    new[node.outputs[0]] = made[0] if len(made) == 1 else node.op(*made)
                    continue
            if inputs != node.inputs:
                again = node.clone_with_new_inputs(inputs)
                new |= dict(zip(node.outputs, again.outputs, strict=True))
        return [new.get(v, v) for v in graph.outputs] if new else None

    def _ordered(self, node: Apply, new: Mapping[Variable, Variable]) -> list[Variable]:
        """Return the terms of a sum or product, of which several may be computed together."""
        varying = sorted((v for v in node.inputs if v in self.depth), key=self.depth.__getitem__)
        own = self.carried.get(node.outputs[0])
        if own in varying:
            others = list(varying)
            others.remove(own)
            if not any(self.states[v] & self.states[own] for v in others):
                varying = [*others, own]
        first = self._first(self.ends[node], node.op, new)
        return [*first, *(new.get(v, v) for v in varying)]

    def _first(self, prefix: _Prefix, op: Any, new: Mapping[Variable, Variable]) -> list[Variable]:
        """Return the terms of a prefix, with one for the part that is shared."""
        chain = []
        step: _Prefix | None = prefix
        while step is not None and step.value is None:
            chain.append(step)
            step = step.above
        terms = [] if step is None or step.value is None else [step.value]
        for part in reversed(chain):
            terms += [new.get(v, v) for v in part.terms]
            if part.is_computed and len(terms) > 1:
                part.value = op(*terms)
                terms = [part.value]
        return terms
