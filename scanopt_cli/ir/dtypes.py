"""What the dtypes of variables and nodes say."""

from __future__ import annotations

from pytensor.graph.basic import Apply, Variable
from pytensor.scalar.basic import ScalarType
from pytensor.tensor.type import TensorType


def is_count(variable: Variable) -> bool:
    """Whether a variable is an integer scalar: a length, a trip count, an index."""
    kind = str(getattr(variable.type, "dtype", ""))
    return kind.startswith(("int", "uint")) and getattr(variable.type, "ndim", None) == 0


def is_numeric(variable: Variable) -> bool:
    """Whether a variable is an array or a number, as a random generator is not."""
    return isinstance(variable.type, TensorType | ScalarType)


def has_one_float_dtype(node: Apply) -> bool:
    """Whether all inputs and outputs of a node are arrays of floats of one dtype."""
    dtypes = {str(getattr(v.type, "dtype", "")) for v in (*node.inputs, *node.outputs)}
    return len(dtypes) == 1 and dtypes.pop().startswith("float")
