"""Factor a matrix once, before the loop that solves by it in each step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import pytensor.tensor as pt
from pytensor.conditional.op import IfElse
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.basic import atleast_Nd
from pytensor.tensor.linalg.decomposition.cholesky import Cholesky, cholesky
from pytensor.tensor.linalg.decomposition.lu import LUFactor, lu_factor
from pytensor.tensor.linalg.solvers.general import Solve, lu_solve
from pytensor.tensor.linalg.solvers.psd import cho_solve
from pytensor.tensor.linalg.solvers.tridiagonal import (
    LUFactorTridiagonal,
    tridiagonal_lu_factor,
    tridiagonal_lu_solve,
)
from pytensor.tensor.rewriting.linalg.utils import (
    get_assume_a,
    strip_left_expand_dims_and_transpose,
)
from pytensor.tensor.shape import Shape_i, specify_shape

from scanopt_cli.analysis.step_rows import invariant_inputs
from scanopt_cli.ir.dtypes import has_one_float_dtype
from scanopt_cli.ir.inner_graphs import core_op
from scanopt_cli.ir.slots import SlotView
from scanopt_cli.passes.push_out.hoisting import hoist, invariant_nodes
from scanopt_cli.pipeline.contract import CompilationTarget, PassContext
from scanopt_cli.pipeline.loop_passes import AnyLoopPass
from scanopt_cli.remarks import Code

type Solver = Callable[[Any, int, bool], Any]
"""Solves by factors, given the right-hand side, the number of its dimensions, and whether by the
transpose of the matrix."""

_STRUCTURES = ("gen", "her", "pos", "sym", "tridiagonal")


@dataclass(frozen=True)
class FactorOnce(AnyLoopPass):
    """Factor a matrix that no step changes once, before the loop that solves by it.

    In each step, ``solve(A, b)`` factors A, in time n³, and then solves in time n². Here the loop
    is given the factors. It takes Scans and TracedLoops.

    Legal cases, by what ``solve`` is told of A, or PyTensor knows of it:

    1. Nothing (``gen``): LU factors, with pivots. Solutions by A and by its transpose, as gradients
       need, share them.
    2. Tridiagonal: likewise, of its three diagonals.
    3. Positive definite (``pos``): a Cholesky factor.
    4. Symmetric (``sym``, and ``her`` of real numbers): LU factors of the matrix that the triangle
       that ``solve`` reads stands for.
    5. Factors that an inner loop is given leave the loop around it too.

    Preconditions: A is computed of non-sequences (constants of a TracedLoop) alone, b is not. Both
    are of one dtype of floats. The loop is not batched, and no step works in place.

    What is computed before the loop is computed only if the loop runs a step (an ``ifelse``),
    unless it provably does; with ``guarded=false``, for JAX, always. The solutions may round
    differently. They are NaN, as those of ``solve``, if the matrix is singular, or not positive
    definite.

    Within `scanopt_cli.enabled` this pass replaces PyTensor's own rewriter, which covers the first
    three cases.

    Out of scope: banded matrices, and matrices that change.
    """

    name: ClassVar[str] = "factor-once"
    accepts_batched: ClassVar[bool] = False
    accepts_in_place: ClassVar[bool] = False

    guarded: bool = True
    """whether nothing is factored if the loop runs no step"""
    tridiagonal: bool = True
    """whether to take case 2; JAX solves such systems without factors"""

    def adapted(self, target: CompilationTarget) -> Self:
        """Guard only what may raise, and leave case 2 out for JAX."""
        return replace(self, guarded=target.raises, tridiagonal=target.linker != "jax")

    def rewrite(self, view: SlotView, context: PassContext) -> dict[Variable, Variable] | None:
        """Return replacements for all outputs, from a loop that is given factors."""
        nodes = view.op.fgraph.apply_nodes
        if not any(_solves(node) or _factors(node) for node in nodes):
            return None
        view.unfreeze()
        known = set(invariant_inputs(view))
        body = FunctionGraph(outputs=view.inner_outputs(), clone=False)
        invariant = invariant_nodes(body.toposort(), known)
        count = self._factor(body, known.union(*(node.outputs for node in invariant)))
        if count:
            context.passed(view, Code.MATRIX_FACTORED, count=count)
            view.set_inner_outputs(list(body.outputs))
        elif not any(map(_factors, invariant)):
            return None
        # What is computed of constants alone stays, and PyTensor computes it when it compiles.
        found = hoist(view, view, context, guarded=self.guarded)
        return view.rebuild() if found is None and count else found

    def _factor(self, body: FunctionGraph, invariant: set[Variable]) -> int:
        """Let ``body`` solve by factors where the matrix is ``invariant``; return how often."""
        solvers: dict[tuple[Variable, str, bool], Solver] = {}
        count = 0
        for node in body.toposort():
            if not _solves(node) or node.outputs[0] in invariant:
                continue
            op: Any = core_op(node.op)
            matrix: Any
            matrix, b = node.inputs
            (found,) = node.outputs
            if not (matrix in invariant or isinstance(matrix, Constant)):
                continue
            matrix, is_transposed = _as_written(matrix)
            structure = _structure(body, op, matrix)
            # Of a transposed matrix, the triangle that is read is the other one.
            lower = structure in ("pos", "sym") and bool(op.lower) != is_transposed
            key = matrix, structure, lower
            if structure == "tridiagonal" and not self.tridiagonal:
                continue
            if key not in solvers:
                solvers[key] = _solver(*key)
            solution = atleast_Nd(solvers[key](b, op.b_ndim, is_transposed), n=found.type.ndim)
            new = found.type.filter_variable(solution, allow_convert=True)
            body.replace(found, new, reason=self.name, import_missing=True)
            count += 1
        return count


def _solves(node: Apply) -> bool:
    """Whether a node solves a system of which there is a factor, of floats of one dtype."""
    op = core_op(node.op)
    return isinstance(op, Solve) and op.assume_a in _STRUCTURES and has_one_float_dtype(node)


def _factors(node: Apply) -> bool:
    """Whether a node factors a matrix, perhaps under a condition."""
    return isinstance(core_op(node.op), Cholesky | LUFactor | LUFactorTridiagonal | IfElse)


def _as_written(matrix: Any) -> tuple[Any, bool]:
    """Return a matrix without the axes that are put before it, and whether it was transposed."""
    is_transposed = False
    while True:
        inner, turned = strip_left_expand_dims_and_transpose(matrix)
        if inner is matrix:
            return matrix, is_transposed
        matrix, is_transposed = inner, is_transposed != turned


def _structure(body: FunctionGraph, op: Solve, matrix: Variable) -> str:
    """Return the name of the best factors of a matrix, given what is known of it."""
    if op.assume_a == "gen":
        known: str = get_assume_a(body, matrix)
        return known if known in ("pos", "tridiagonal") else "gen"
    return "sym" if op.assume_a == "her" else str(op.assume_a)


def _solver(matrix: Any, structure: str, lower: bool) -> Solver:
    """Factor a matrix, and return how to solve by the factors."""
    if structure == "tridiagonal":
        diagonals = tridiagonal_lu_factor(matrix)
        return lambda b, ndim, transposed: tridiagonal_lu_solve(
            diagonals, b, b_ndim=ndim, transposed=transposed
        )
    if structure == "pos":
        factor = cholesky(matrix, lower=lower)
        return lambda b, ndim, _: cho_solve((factor, lower), b, b_ndim=ndim)
    if structure == "sym":
        is_lower = pt.tri(matrix.shape[-1], dtype=bool)
        matrix = pt.where(is_lower if lower else is_lower.T, matrix, matrix.mT)
    factors = lu_factor(matrix)

    def solve(b: Any, ndim: int, is_transposed: bool) -> Any:
        found = lu_solve(factors, b, trans=is_transposed, b_ndim=ndim)
        # PyTensor would ask the pivots for the number of rows, so that a state would seem to change
        # its shape.
        shape: list[Any] = [Shape_i(dim)(b) for dim in range(b.type.ndim)]
        return specify_shape(found, shape) if matrix.type.ndim == 2 else found

    return solve
