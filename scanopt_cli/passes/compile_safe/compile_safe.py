"""Bring loops into forms that PyTensor compiles right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from scanopt_cli.passes.compile_safe.bodies import CompileSafeBodies
from scanopt_cli.passes.compile_safe.conditions import mark_conditions
from scanopt_cli.passes.compile_safe.copies import copy_buffers, copy_rows
from scanopt_cli.passes.compile_safe.overwritten import CopyOverwritten
from scanopt_cli.passes.hoist_states import HoistStates
from scanopt_cli.pipeline.contract import Pass, PassContext


@dataclass(frozen=True)
class CompileSafe(Pass):
    """Bring loops into forms that PyTensor 3.3.7 compiles right.

    A graph that is right as it stands may be wrong once PyTensor has compiled it: some of its own
    rewrites of loops are unsound. `scanopt optimize` ends with this pass, whatever passes are
    named, so that what it writes may be compiled by anyone, in any mode.

    What a loop looks like when PyTensor rewrites it is not what it looks like now: by then PyTensor
    has folded constants, moved invariants out of bodies and indices through arithmetic, and inlined
    OpFromGraphs. So what may become one of these forms counts as one.

    Legal cases:

    1. A state that every step sets to the same value is computed outside, as by ``hoist-states``.
       Of a loop in which nothing varies all the same, a step copies what it computes (by
       ``DeepCopyOp``), which PyTensor does not move: ``scan_push_out_non_seq`` drops the initial
       rows of states, mixes up those of mit_mots, and takes a while loop for one that runs all
       steps.
    2. A state is updated to a sum of itself and a matrix product. Of three or more terms, it is
       written as sums of two terms, in the same order: ``scan_push_out_add`` drops the third. Of
       two, ``S + A @ B`` is written as ``S - -(A @ B)`` where that rewrite is not shown to be
       right: where the factors are no sequences of the length of the loop, or no floats of the
       state's type.
    3. A sequence that a step does elementwise arithmetic with is not shown to be as long as the
       loop: it is cut to the steps. A loop that would be computed without one, from its sequences,
       has trimmed buffers, untraced states, or mit_sots that reach back differently far: a step
       copies what it computes. (``scan_push_out_seq`` computes with all rows that sequences have,
       and mixes up those of states.)
    4. Of several while loops, each gets a stop condition that no other has: ``c or c == K``, where
       ``c`` is never the number ``K``. (``ScanMerge`` takes loops for one whose conditions read
       states that only start equal.)
    5. mit_sots or mit_mots with the same taps, in one loop or several, may start equal: each starts
       with a different number of copies. (``scan_merge_inouts`` takes them for one.)
    6. Rows of an output are read in a way that PyTensor's ``scan_reduce_nsteps`` and
       ``scan_reduce_trace`` may get wrong: the reader reads a copy, through which they do not look.
       These are

       * of a while loop, and of a buffer that is not shown to hold every step: all reads by an
         index, but of the last row;
       * of a mit_mot: all reads by an index;
       * last rows that are not shown to exist (``xs[-3:]`` of a map of maybe two steps), or that do
         not end at the end (``xs[-3:i]``), with a step (``xs[-4:4:2]``), or with an unknown bound
         (``xs[i:-1]``), and all but last rows that are not shown to exist (``xs[:-3]``);
       * a row of two or more initial ones;
       * indices of what is computed from the output, other than through a loop that carries states
         (``sin(xs)[i:]``), and of slices of it; and what an OpFromGraph returns that is inlined.
    7. A step overwrites rows of mit_mots, and computes other outputs from them, of their type: it
       copies these outputs. (Such an output may be simplified to the row itself, or to a view of
       it: PyTensor's virtual machine then overwrites the row before it reads the output, or sets
       both to None. Numba and JAX do not.)

    Values are the same, to the last bit. A copy costs the time and the memory of one.

    Preconditions: none. Batched loops, which PyTensor does not rewrite, are looked at for case 7
    only.

    Out of scope: what PyTensor compiles wrongly in graphs without loops; errors that it loses (an
    index out of bounds, a sequence that is too short); a constant sequence of ``0.0`` and ``-0.0``.
    """

    name: ClassVar[str] = "compile-safe"

    def run(self, context: PassContext) -> bool:
        """Mend each loop of a graph."""
        changed = HoistStates().run(context)
        changed = CompileSafeBodies().run(context) or changed
        changed = CopyOverwritten().run(context) or changed
        changed = mark_conditions(context) or changed
        changed = copy_buffers(context) or changed
        return copy_rows(context) or changed
