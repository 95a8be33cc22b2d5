"""What the variables of a body are outside of the loop: rows of all steps, or one value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Variable

from scanopt_cli.passes.push_out.rows_of_all_steps import if_there_is_a_step


@dataclass(frozen=True, slots=True)
class Outside:
    """What is known outside of a loop.

    Attributes
    ----------
    varying
        What variables of the body are in all steps, one row for each.
    invariant
        What those are that no step changes.
    n_steps
        The number of steps.
    runs
        Whether the loop provably runs a step.
    """

    varying: Mapping[Variable, Any]
    invariant: Mapping[Variable, Any]
    n_steps: Any
    runs: bool

    def of(self, variable: Variable) -> Any:
        """Return the rows of all steps, or the one value; a constant stands for itself."""
        return self.varying.get(variable, self.invariant.get(variable, variable))

    def rows(self, variable: Variable) -> Any:
        """Return the rows of all steps, all equal if no step changes the variable."""
        if variable in self.varying:
            return self.varying[variable]
        value: Any = pt.as_tensor_variable(self.of(variable))
        return pt.alloc(value, self.n_steps, *(value.shape[i] for i in range(value.ndim)))

    def indices(self, index: Any) -> Any:
        """Return an index of a body, a variable or a slice of them, as it is outside."""
        if isinstance(index, slice):
            parts = (index.start, index.stop, index.step)
            return slice(*(part if part is None else self.of(part) for part in parts))
        return self.of(index)

    def if_there_is_a_step(self, made: Sequence[Any]) -> list[Any]:
        """Return what is computed only if the loop runs a step, as it may raise an error."""
        return list(made) if self.runs else if_there_is_a_step(made, self.n_steps)
