"""Choose the settings of runs, and draw arguments whose shapes and values a graph may accept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from pytensor.graph.type import Type
from pytensor.scalar.basic import ScalarType
from pytensor.tensor.random.type import RandomGeneratorType
from pytensor.tensor.type import TensorType

from scanopt_cli.text import plural
from scanopt_cli.verification.input_constraints import InputConstraints, Role

type Style = Literal["unit", "normal", "definite"]
type Shapes = Literal["recorded", "distinct", "equal", "longer", "shorter", "random"]

_STYLES: tuple[Style, ...] = ("unit", "normal", "definite")
_SHAPES: tuple[Shapes, ...] = ("distinct", "equal", "longer", "shorter", "random", "random")


class UndrawableError(Exception):
    """An input has a type for which scanopt cannot draw values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The conditions that one run tests, and how its arguments are drawn.

    Attributes
    ----------
    steps
        The trip count of the loops whose trip count the arguments decide; ``None`` for several
        steps.
    contents
        Whether shared variables keep the contents stored in their file.
    special
        Whether some floats are NaN or infinite.
    many
        The number that "several" stands for; drawn lengths vary around it.
    style
        The distribution of floats: ``unit`` is inside (0, 1), ``normal`` has both signs,
        ``definite`` makes square matrices positive definite.
    shapes
        How lengths are chosen. A run prefers its own style and shapes; `attempts` falls back to the
        others.
    """

    steps: int | None = None
    contents: bool = False
    special: bool = False
    many: int = 3
    style: Style = "normal"
    shapes: Shapes = "distinct"

    def __str__(self) -> str:
        parts = ["random"]
        if self.shapes == "recorded":
            parts.append("of recorded shapes")
        elif self.steps is not None:
            parts.append(plural(self.steps, "step"))
        if self.special:
            parts.append("NaN and infinities among them")
        return ", ".join(parts)


# The most valuable first: even a few runs cover several steps, no step and one step.
_CYCLE = (
    Setting(contents=True),
    Setting(steps=0, style="unit"),
    Setting(steps=1),
    Setting(special=True, contents=True),
    Setting(steps=2, style="unit"),
)


def settings(runs: int, constraints: InputConstraints) -> Iterator[Setting]:
    """Yield the settings of ``runs`` runs, round after round through `_CYCLE`.

    Every round uses longer loops and larger arrays than the one before; only the first keeps the
    contents of shared variables.
    """
    for run in range(runs):
        setting = replace(_CYCLE[run % len(_CYCLE)], many=3 + 3 * (run // len(_CYCLE)))
        if run >= len(_CYCLE):
            setting = replace(setting, contents=False)
        yield setting if constraints.counts_steps else replace(setting, steps=None)


def attempts(setting: Setting, *, recorded: bool) -> Iterator[Setting]:
    """Yield ways to satisfy ``setting``, those likely to succeed first; their number is bounded.

    With ``recorded`` arguments, their shapes are among the candidates. A graph that takes fixed
    parts of a long vector (all parameters of a model in one vector) accepts no other shapes.
    """
    styles = (setting.style, *(style for style in _STYLES if style != setting.style))
    settings = [setting] if setting.contents else [setting, replace(setting, contents=True)]
    as_recorded: tuple[Shapes, ...] = ("recorded",) if recorded else ()
    # The trip count that recorded shapes lead to is unknown; it is unlikely to be 0 or 1.
    recorded_first = setting.steps is None or setting.steps > 1
    every = (*as_recorded, *_SHAPES) if recorded_first else (*_SHAPES, *as_recorded)
    for candidate in settings:
        for shapes in every:
            for style in styles:
                yield replace(candidate, shapes=shapes, style=style)


def draw(
    setting: Setting,
    constraints: InputConstraints,
    types: Sequence[Type],
    contents: Mapping[int, Any],
    recorded: Sequence[Any],
    rng: np.random.Generator,
) -> tuple[Any, ...]:
    """Draw one argument for each input, aligned with ``types``.

    ``contents`` holds the contents of shared variables by input position, ``recorded`` the
    arguments of a recorded call, if there is one.

    Raises
    ------
    UndrawableError
        If a type is neither an array, a scalar nor a random generator.
    """
    kept = contents if setting.contents else {}
    is_recorded = setting.shapes == "recorded"
    shapes = (
        list(map(np.shape, recorded)) if is_recorded else _shapes(setting, constraints, kept, rng)
    )
    arguments = []
    for position, wanted in enumerate(types):
        if position in kept:
            arguments.append(deepcopy(kept[position]))
            continue
        if is_recorded and not _is_drawn(wanted):
            arguments.append(deepcopy(recorded[position]))
            continue
        role = constraints.roles[position]
        arguments.append(_value(wanted, shapes[position], role, setting, rng))
    if setting.special:
        return _with_specials(arguments, rng)
    return tuple(arguments)


def _is_drawn(wanted: Type) -> bool:
    """Whether an input gets new values in place of recorded ones: floats, complex, generators."""
    if isinstance(wanted, TensorType | ScalarType):
        return np.dtype(wanted.dtype).kind in "fc"
    return isinstance(wanted, RandomGeneratorType)


def _shapes(
    setting: Setting,
    constraints: InputConstraints,
    kept: Mapping[int, Any],
    rng: np.random.Generator,
) -> list[tuple[int, ...]]:
    """Choose a length for every label: by kept contents, else static type, else the setting."""
    lengths = dict(constraints.static)
    for position, content in kept.items():
        lengths.update(zip(constraints.labels[position], np.shape(content), strict=False))
    labels = dict.fromkeys(label for axes in constraints.labels for label in axes)
    for place, label in enumerate(labels):
        if label not in lengths:
            lengths[label] = _length(setting, place, label in constraints.stepped, rng)
    return [tuple(lengths[label] for label in labels) for labels in constraints.labels]


def _length(setting: Setting, place: int, stepped: bool, rng: np.random.Generator) -> int:
    steps, many = setting.steps, setting.many
    match setting.shapes:
        case "distinct":
            return steps if steps is not None and stepped else many + place % 5
        case "equal":
            return many if steps is None else steps
        case "longer":
            return steps + 1 if steps is not None and stepped else many + 1
        case "shorter":
            return many - 1 if steps is None else many
        case _:
            return int(rng.integers(1, 7))


def _count(setting: Setting, role: Role, rng: np.random.Generator) -> int:
    """Return the value of an integer input that is a trip count or a size."""
    if setting.steps is not None and (role is Role.STEPS or setting.shapes == "equal"):
        return setting.steps
    return int(rng.integers(0, 7)) if setting.shapes == "random" else setting.many


def _value(
    wanted: Type, shape: tuple[int, ...], role: Role, setting: Setting, rng: np.random.Generator
) -> Any:
    if isinstance(wanted, RandomGeneratorType):
        return np.random.default_rng(int(rng.integers(2**32)))
    if not isinstance(wanted, TensorType | ScalarType):
        raise UndrawableError(f"no values can be drawn for an input of type {wanted}")
    dtype = np.dtype(wanted.dtype)
    values = _numbers(dtype, shape, role, setting, rng)
    return values if isinstance(wanted, TensorType) else dtype.type(values)


def _numbers(
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    role: Role,
    setting: Setting,
    rng: np.random.Generator,
) -> np.ndarray:
    if dtype.kind == "b":
        return np.asarray(rng.integers(0, 2, shape), dtype)
    if dtype.kind in "iu":
        match role:
            case Role.STEPS | Role.SIZE:
                return np.full(shape, _count(setting, role, rng), dtype)
            case Role.INDEX:
                return np.asarray(rng.integers(0, 2, shape), dtype)
        return np.asarray(rng.integers(0 if dtype.kind == "u" else -3, 6, shape), dtype)
    values = np.asarray(_floats(shape, setting.style, rng))
    if dtype.kind == "c":
        values = values + 1j * _floats(shape, "normal", rng)
    return np.asarray(values, dtype)


def _floats(shape: tuple[int, ...], style: Style, rng: np.random.Generator) -> Any:
    """Draw floats: inside (0, 1), of both signs, or with positive definite matrices."""
    if style == "normal":
        return rng.standard_normal(shape)
    values = rng.uniform(0.05, 0.95, shape)
    if style == "definite" and len(shape) >= 2 and shape[-1] == shape[-2]:
        return values @ np.swapaxes(values, -1, -2) + np.eye(shape[-1])
    return values


def _with_specials(arguments: Sequence[Any], rng: np.random.Generator) -> tuple[Any, ...]:
    """Put a NaN into one float array, and an infinity into each with probability 1/2.

    The array with the NaN gets an infinity only if it has room for both; if it is the only float
    array, it then always does.
    """
    floats = [
        position
        for position, value in enumerate(arguments)
        if isinstance(value, np.ndarray) and value.dtype.kind in "fc" and value.size
    ]
    changed = [value.copy() if place in floats else value for place, value in enumerate(arguments)]
    if floats:
        chosen = floats[int(rng.integers(len(floats)))]
        for position in floats:
            value = changed[position]
            specials = [np.nan] if position == chosen else []
            if rng.random() < 0.5 or len(floats) == 1:
                specials.append(float(rng.choice([np.inf, -np.inf])))
            places = rng.permutation(value.size)[: len(specials)]
            value.flat[places] = specials[: len(places)]
    return tuple(changed)
