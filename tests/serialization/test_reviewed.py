"""Every class of graphs of PyTensor, PyMC and pymc-extras was looked at, or this tells which not.

A new release has new classes: read what their constructors do with what they are given, and put
them into one of the lists of `unpickler/reviewed.py`, or below if no graph holds them.
"""

from __future__ import annotations

import importlib
import pkgutil
import warnings
from collections.abc import Iterator

import pytest
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.graph.type import Type

from scanopt_cli.serialization.unpickler.allowlist import PACKAGES, Allowlist, Refusal
from scanopt_cli.serialization.unpickler.reviewed import ADMITTED, REFUSED

_ABSTRACT = {
    "pymc.distributions.distribution": "SymbolicRandomVariable",
    "pymc.distributions.mixture": "_BaseMixtureRV",
    "pymc.distributions.multivariate": "SymbolicMVNormalUsedInternally",
    "pymc.logprob.abstract": "MeasurableElemwise",
    "pymc.logprob.linalg": "MeasurableMatMul",
    "pymc.model.fgraph": "ModelValuedVar ModelVar",
    "pymc_extras.model.marginal.distributions.core": "MarginalRV",
    "pymc_extras.model.marginal.distributions.enumerable": "EnumerableMarginalRV",
    "pymc_extras.model.marginal.rewrites": (
        "AbstractDeferredMarginalSubgraph DeferredLaplaceMarginalSubgraph "
        "DeferredMarginalSubgraph LaplaceMarginalSubgraph MarginalSubgraph "
        "MarginalSubgraphBase"
    ),
    "pytensor.compile.builders": "FinalizedOpFromGraph SymbolicOp",
    "pytensor.compile.debug.debugmode": "OutputGuard",
    "pytensor.compile.ops": "TypeCastingOp",
    "pytensor.graph.basic": "AtomicVariable",
    "pytensor.graph.op": "Op _NoPythonOp",
    "pytensor.graph.type": "Type",
    "pytensor.link.c.op": "COp OpenMPOp _NoPythonCOp",
    "pytensor.link.jax.dispatch.shape": "JAXShapeTuple",  # made while JAX compiles
    "pytensor.link.c.type": "CType",
    "pytensor.raise_op": "ExceptionType",
    "pytensor.scalar.basic": (
        "BinaryBitOp BinaryScalarOp FixedLogicalComparison LogicalComparison "
        "ScalarInnerGraphOp ScalarOp UnaryBitOp UnaryScalarOp"
    ),
    "pytensor.sparse.basic": "Stack",
    "pytensor.sparse.math": "__ComparisonOpSparseDense __ComparisonOpSparseSparse",
    "pytensor.tensor.blas.blas_c": "BaseBLAS",
    "pytensor.tensor.blas.gemm": "GemmRelated",
    "pytensor.tensor.blockwise": "OpWithCoreShape",
    "pytensor.tensor.linalg.constructors": "BaseBlockDiagonal",
    "pytensor.tensor.linalg.solvers.core": "SolveBase",
    "pytensor.tensor.math": "FixedOpCAReduce MaxAndMinCAReduce",
    "pytensor.tensor.optimize": "ScipyScalarWrapperOp ScipyVectorWrapperOp ScipyWrapperOp",
    "pytensor.tensor.random.basic": "ScipyRandomVariable",
    "pytensor.tensor.random.op": "AbstractRNGConstructor RNGConsumerOp RandomVariable",
    "pytensor.tensor.random.type": "AbstractRandomGeneratorType RandomType",
    "pytensor.tensor.symbolic": "FusibleSymbolicOp TensorSymbolicOp",
    "pytensor.tensor.type": "DenseTensorType",
    "pytensor.tensor.variable": "DenseTensorConstant DenseTensorVariable",
    "pytensor.xtensor.basic": "XOp XTypeCastOp",
}
"""Modules, and the names of classes that no graph holds: bases, and marks of rewrites."""
# Entered by hand, they run something when they are imported.
# The import of `pytensor.tensor.var` hides the function of that name.
_LEFT_OUT = ("pytensor.bin", "pytensor.misc", "pytensor.ipython", "pytensor.scan.scan_perform")
_HIDES = "pytensor.tensor.var"


def _names(table: object) -> set[tuple[str, str]]:
    assert isinstance(table, dict)
    return {(module, name) for module, names in table.items() for name in names.split()}


def _import_all(package: str) -> None:
    try:
        root = importlib.import_module(package)
    except ImportError:
        return
    for found in pkgutil.walk_packages(root.__path__, f"{package}.", onerror=lambda _: None):
        parts = set(found.name.split("."))
        is_left_out = found.name.startswith(_LEFT_OUT) or found.name == _HIDES
        if not is_left_out and not parts & {"tests", "__main__"}:
            try:
                importlib.import_module(found.name)
            except Exception:
                continue  # it needs a package that is not there


def _subclasses(cls: type) -> Iterator[type]:
    yield cls
    for sub in type.__subclasses__(cls):
        yield from _subclasses(sub)


@pytest.mark.parametrize("package", ["pytensor", pytest.param("pymc", marks=pytest.mark.pymc)])
def test_every_class_was_looked_at(package: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in PACKAGES if package == "pymc" else [package]:
            _import_all(name)
    roots = PACKAGES if package == "pymc" else (package,)
    found = {
        (cls.__module__, cls.__qualname__)
        for base in (Op, Type, Variable, Apply)
        for cls in _subclasses(base)
        if cls.__module__.split(".")[0] in roots and cls.__qualname__.isidentifier()
    }
    looked_at = _names(ADMITTED) | set(REFUSED) | _names(_ABSTRACT)
    assert sorted(found - looked_at) == []


def test_the_lists_are_apart() -> None:
    lists = (_names(ADMITTED), set(REFUSED), _names(_ABSTRACT))
    assert len(set().union(*lists)) == sum(map(len, lists))


def test_what_is_admitted_is_there() -> None:
    resolve = Allowlist(frozenset()).resolve
    wrong = {
        (module, name): resolve(module, name)
        for module, name in _names(ADMITTED)
        if module.startswith("pytensor.") and isinstance(resolve(module, name), Refusal)
    }
    assert wrong == {}


@pytest.mark.parametrize(("module", "name"), [*REFUSED, *sorted(_names(_ABSTRACT))])
def test_what_is_not_admitted_is_refused(module: str, name: str) -> None:
    for packages in ((), PACKAGES):
        verdict = Allowlist(frozenset(), packages).resolve(module, name)
        if (module, name) in REFUSED or not packages:
            assert isinstance(verdict, Refusal)


def test_a_class_of_pytensor_that_nobody_read_is_refused_with_a_hint() -> None:
    verdict = Allowlist(frozenset()).resolve("pytensor.tensor.new", "Op")
    assert isinstance(verdict, Refusal)
    assert "nobody has read" in verdict.reason
    assert "--allow-package pytensor runs constructors of pytensor" in verdict.hint
