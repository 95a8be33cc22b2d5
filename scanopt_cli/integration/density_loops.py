"""Where the loop of a log-density was written, if the distribution calls ``scan`` when it is asked.

PyMC asks a distribution for its log-density while a model is compiled, so the innermost line of the
program is then the one that compiles. The loop belongs to the line that made the random variable,
which the variable's stack tells, or that of a parameter: the stack of the variable itself is often
cut off before the program's frame.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any

from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors

from scanopt_cli.ir.written import (
    Frame,
    Written,
    asks_for_density,
    from_frames,
    is_of_program,
)


def of_density(frame: FrameType) -> Written | None:
    """Return where the loop that ``frame`` makes was written; ``None`` if it is of no density.

    A density that the program computes itself, in a function that calls ``scan``, has that line.
    One of a library has the line that made the random variable, or else, the library's own.
    """
    inside: list[Frame] = []
    is_density = False
    caller: FrameType | None = frame
    while caller is not None:
        code = caller.f_code
        here: Frame = (code.co_filename, caller.f_lineno, code.co_name, None)
        if is_of_program(code.co_filename):
            break
        if asks_for_density(here):
            is_density = True
            found = next(filter(None, _made_at(caller.f_locals)), None)
            if found is not None:
                return found
        elif not is_density:
            inside.append(here)
        caller = caller.f_back
    return from_frames(inside) if is_density else None


def _made_at(values: Mapping[str, Any]) -> Iterator[Written | None]:
    """Yield where the variables were made whose density is asked for, by the caller's variables."""
    made = list(values["rv_values"])
    for place in values["node_output_idxs"]:
        variable: Variable = made[place]
        stacks = list(_stacks(variable))
        yield _of_program(stacks) or _of_parameters(variable, stacks, made)


def _of_program(stacks: Iterable[list[Frame]]) -> Written | None:
    """Return the innermost line of the program, and nothing of a library."""
    frames = [frame for stack in stacks for frame in stack if is_of_program(frame[0])]
    return from_frames(frames)


def _of_parameters(
    variable: Variable, stacks: Iterable[list[Frame]], made: Iterable[Variable]
) -> Written | None:
    """Return the line that called what made ``variable``, where its stacks are cut off.

    A parameter that the same call made may have more of the stack. One that another variable
    depends on may come from the call that made that one, if equal parameters were merged.
    """
    called = {stack[-1] for stack in stacks if stack}
    found = {
        stack[place + 1]: parameter
        for parameter in _parameters(variable)
        for stack in _stacks(parameter)
        for place, frame in enumerate(stack[:-1])
        if frame in called and is_of_program(stack[place + 1][0])
    }
    if len(found) != 1:
        return None
    ((frame, parameter),) = found.items()
    others = [other for other in made if other is not variable]
    inputs = [needed for other in others for needed in _parameters(other)]
    return None if parameter in set(ancestors(inputs, blockers=made)) else from_frames([frame])


def _parameters(variable: Variable) -> Sequence[Variable]:
    return () if variable.owner is None else variable.owner.inputs


def _stacks(variable: Variable) -> Iterator[list[Frame]]:
    """Yield the stacks of a variable, each with the innermost frame first."""
    for stack in getattr(variable.tag, "trace", None) or ():
        yield list(reversed(list(stack)))
