"""Ops that factor matrices, invert them, or solve by them, in time n³."""

from __future__ import annotations

from pytensor.tensor.linalg.decomposition.cholesky import Cholesky
from pytensor.tensor.linalg.inverse import MatrixInverse
from pytensor.tensor.linalg.solvers.general import Solve
from pytensor.tensor.linalg.solvers.psd import CholeskySolve
from pytensor.tensor.linalg.solvers.triangular import SolveTriangular
from pytensor.tensor.linalg.summary import Det, SLogDet

SOLVERS = (CholeskySolve, Solve, SolveTriangular)
"""Ops that solve by a matrix."""
DETERMINANTS = (Det, SLogDet)
"""Ops that compute a number of a matrix."""
MATRIX_OPS = (*SOLVERS, *DETERMINANTS, Cholesky, MatrixInverse)
"""Ops that compute floats alone of matrices, each in more time than to read what it computes."""
