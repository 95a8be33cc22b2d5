"""Rewrite loops into forms that PyTensor compiles right."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from pytensor.graph.basic import Apply, Variable

from scanopt_cli.errors import PassError
from scanopt_cli.passes.hoist_states import HoistStates
from scanopt_cli.passes.merge_equal import duplicates
from scanopt_cli.pipeline.contract import Pass, PassContext, Rewrite
from scanopt_cli.pipeline.loop_passes import ScanPass


class _HoistStatesOfScans(HoistStates):
    loops = ScanPass.loops


_PARTS = "bodies", "overwritten"


def _part(name: str) -> ScanPass:
    """Return a part of the pass; a compilation runs one of them, and imports no other."""
    if name == "bodies":
        from scanopt_cli.passes.of_scans.compile_safe.bodies import CompileSafeBodies

        return CompileSafeBodies()
    from scanopt_cli.passes.of_scans.compile_safe.overwritten import CopyOverwritten

    return CopyOverwritten()


@dataclass(frozen=True)
class CompileSafe(Pass):
    """Rewrite loops into forms that PyTensor <version> compiles right.

    PyTensor may miscompile a correct graph, since some of its own rewrites of loops are unsound.
    `scanopt optimize` ends with this pass, whatever passes are named, so that anyone may compile
    its result, in any mode.

    PyTensor rewrites a loop after it has folded constants, moved invariants out of bodies, moved
    indices through arithmetic, and inlined OpFromGraphs. So this pass handles every loop that may
    take one of the forms below, not only those that have it already.

    Legal cases:

    1. A state that every step sets to the same value is computed outside, as by ``hoist-states``.
       If nothing varies in a loop that remains, a step copies its outputs (by ``DeepCopyOp``),
       which PyTensor does not move: ``scan_push_out_non_seq`` drops the initial rows of states,
       mixes up those of mit_mots, and treats a while loop as one that runs all steps.
    2. A state is updated to a sum that has a matrix product as a term. A sum of three or more terms
       is written as nested sums of two terms, in the same order: ``scan_push_out_add`` drops the
       third. A sum of two terms, ``S + A @ B``, is written as ``S - -(A @ B)`` unless that rewrite
       is provably right: unless both factors are sequences of the length of the loop, and the
       product has the dtype of the state, a float.
    3. A step does elementwise arithmetic with a sequence that is not provably as long as the loop:
       the sequence is cut to the trip count. PyTensor would replace a loop by an expression of its
       sequences, but the loop has trimmed buffers, untraced states, or mit_sots with different
       numbers of initial rows: a step copies its outputs. (``scan_push_out_seq`` computes with all
       rows of the sequences, and mixes up those of states.)
    4. The graph has several while loops: each gets its own stop condition, ``c or c == K``, where
       ``c`` never equals the number ``K``. (``ScanMerge`` merges loops whose conditions read states
       that only start equal.)
    5. mit_sots or mit_mots with the same taps, in one loop or several, may start equal: each starts
       with another copy. (``scan_merge_inouts`` treats them as one.) Copies differ in how often the
       array is copied, and whether with an axis of length 1 before or after the others; the
       thousandth state has 6.
    6. Rows of an output are read in a way that PyTensor's ``scan_reduce_nsteps`` and
       ``scan_reduce_trace`` may get wrong: the reader reads a copy, through which they do not look.
       These reads are

       * of a while loop, and of a buffer that does not provably hold every step: all reads by an
         index, except of the last row;
       * of a mit_mot: all reads by an index;
       * last rows that do not provably exist (``xs[-3:]`` of a map that may run two steps), or that
         do not extend to the end (``xs[-3:i]``), with a step (``xs[-4:4:2]``), or with an unknown
         bound (``xs[i:-1]``), and slices that stop before last rows that do not provably exist
         (``xs[:-3]``);
       * a row of a state with two or more initial rows, read by an index into all its rows, except
         the last row;
       * indices of values computed from the output, except through a loop that carries states
         (``sin(xs)[i:]``), and indices of slices of the output; and outputs of an OpFromGraph that
         PyTensor inlines.
    7. A step overwrites rows of mit_mots, and computes other outputs of the same type from them: it
       copies these outputs. (PyTensor may simplify such an output to the row itself, or to a view
       of it. Its virtual machine then overwrites the row before it reads the output, or sets both
       to None. Numba and JAX do not.) So it does with an output that is the earliest row of another
       state, whose buffer does not provably have room for one more.
    8. A node leaves open a length of 1 that its inputs decide, or a body one that the loop is fed
       with: both declare it. A state of which only one end would declare it keeps its type by a
       copy. (PyTensor infers such a length when it makes a node anew, outside or on the way out of
       a body. Its Scan then refuses the value, and all rewrites of the loop fail; of a state, so
       does the rewrite of its body, without which nothing is compiled.)
    9. A branch of an IfElse may raise an error: it reads copies of what is computed outside of it,
       and readers of its results read copies. (Before a node overwrites memory, PyTensor's virtual
       machine computes all other readers of it, also those in a branch that is not taken.) Not
       beside a TracedLoop, which brings a rewrite that needs no copies.

    Values stay the same, to the last bit. Each copy costs time and memory.

    The option ``only`` picks cases: ``bodies`` those of sums and sequences (2, 3) and the copies of
    case 1, for a graph that is to be differentiated again; ``overwritten`` case 7.

    Preconditions: none. Batched loops, which PyTensor does not rewrite, are examined for case 7
    and, as readers, for case 8 only.

    Out of scope: miscompiled graphs without loops; errors that PyTensor loses (an index out of
    bounds, a sequence that is too short); a constant sequence of ``0.0`` and ``-0.0``.
    """

    name: ClassVar[str] = "compile-safe"

    only: str = "all"
    """which cases: all, bodies or overwritten"""

    def __post_init__(self) -> None:
        if self.only not in ("all", *_PARTS):
            raise PassError(f"only is all, {' or '.join(_PARTS)}")

    def rewrites(self, context: PassContext) -> Iterator[Rewrite]:
        """Apply the cases to the loops of a graph."""
        if self.only in _PARTS:
            yield from _part(self.only).rewrites(context)
            return
        from scanopt_cli.passes.of_scans.compile_safe.branches import copy_of_branches
        from scanopt_cli.passes.of_scans.compile_safe.conditions import mark_conditions
        from scanopt_cli.passes.of_scans.compile_safe.copies import copy_buffers, copy_rows
        from scanopt_cli.passes.of_scans.compile_safe.unit_lengths import declare_unit_lengths

        known = set(context.fgraph.apply_nodes)
        yield from _HoistStatesOfScans(outputs=False, unchanged=False).rewrites(context)
        for name in _PARTS:
            yield from _part(name).rewrites(context)
        cases = mark_conditions, copy_buffers, copy_rows, declare_unit_lengths, copy_of_branches
        for case in cases:
            yield from case(context)
        if not known.issuperset(context.fgraph.apply_nodes) and not context.is_in_place():
            merged = duplicates(replace(context))  # the digests of the old one are of the old graph
            pairs = ((one, two) for one, two in merged if not known.issuperset(_owners(one, two)))
            yield Rewrite(dict(reversed(list(pairs))), count=0)


def _owners(*variables: Variable) -> set[Apply]:
    """Return the nodes that compute ``variables``."""
    return {variable.owner for variable in variables if variable.owner is not None}
