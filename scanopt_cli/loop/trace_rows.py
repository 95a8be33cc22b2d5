"""Reading a row of a trace, and writing one, for every type that a state can have."""

from __future__ import annotations

from pytensor.graph.basic import Variable
from pytensor.graph.type import Type
from pytensor.scalar.basic import ScalarType
from pytensor.tensor.basic import scalar_from_tensor, tensor_from_scalar
from pytensor.tensor.subtensor import set_subtensor
from pytensor.tensor.type import DenseTensorType, TensorType, continuous_dtypes
from pytensor.typed_list.basic import append, getitem
from pytensor.typed_list.type import TypedListType

from scanopt_cli.loop.body import Symbolic


def trace_type(kind: Type) -> Type:
    """Return the type of a trace of values of one type."""
    if isinstance(kind, DenseTensorType):
        return kind.clone(shape=(None, *kind.shape))
    if isinstance(kind, ScalarType):
        return TensorType(kind.dtype, shape=(None,))
    return TypedListType(kind)


def has_array_trace(kind: Type) -> bool:
    """Whether a trace of values of this type is an array."""
    return isinstance(kind, DenseTensorType | ScalarType)


def is_continuous(variable: Variable) -> bool:
    """Whether a variable is an array or a number that has derivatives."""
    return has_array_trace(variable.type) and variable.type.dtype in continuous_dtypes


def as_type(variable: Symbolic, wanted: Variable) -> Symbolic:
    """Return a derivative as a variable of the type of ``wanted``."""
    if variable.type.dtype != wanted.type.dtype:
        variable = variable.astype(wanted.type.dtype)
    return wanted.type.filter_variable(variable)


def row(trace: Symbolic, index: Symbolic, kind: Type) -> Symbolic:
    """Return row ``index`` of a trace of values of type ``kind``."""
    if isinstance(trace.type, TypedListType):
        return getitem(trace, index)
    value = trace[index]
    return (
        scalar_from_tensor(value) if isinstance(kind, ScalarType) else kind.filter_variable(value)
    )


def with_row(trace: Symbolic, index: Symbolic, value: Symbolic) -> Symbolic:
    """Return a trace after ``value`` was written into row ``index``; to a list it is appended."""
    if isinstance(trace.type, TypedListType):
        return append(trace, value)
    if isinstance(value.type, ScalarType):
        value = tensor_from_scalar(value)
    return set_subtensor(trace[index], value)
