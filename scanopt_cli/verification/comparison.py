"""Compare the values of two graphs on the same arguments, and report where they differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pytensor.graph.basic import Variable

from scanopt_cli.serialization.unpickler.generators import plain_state
from scanopt_cli.verification.result import Difference, DifferenceKind

# Two ways to compute one number differ by rounding. The tolerance is this fraction of the number
# itself, plus some units in the last place of the largest number in the output (for sums that
# cancel) or of 1 if that is larger, since arguments are of that size.
_RELATIVE = {np.dtype(np.float16): 1e-2, np.dtype(np.float32): 1e-5, np.dtype(np.float64): 1e-9}
_ULPS = 256


@dataclass(frozen=True, slots=True)
class Sample:
    """Arguments for one run, which ``text`` describes.

    With ``specials``, NaNs and infinities are among them.
    """

    run: int
    text: str
    arguments: tuple[Any, ...]
    specials: bool = False


@dataclass(frozen=True, slots=True)
class Comparison:
    """How the outputs of one run compare.

    Attributes
    ----------
    identical
        Whether all outputs have the same bits (all NaNs count as equal).
    compared
        Positions of the outputs that are evidence: they hold a finite number, or are not arrays
        (the state of a generator).
    faint
        Positions of the outputs that differ within tolerance, and whose numbers are all so small
        that they may be rounding errors of larger numbers. Their agreement is no evidence.
    empty
        Whether all outputs are arrays without elements.
    differences
        One entry for each output out of tolerance.
    """

    identical: bool
    empty: bool
    differences: tuple[Difference, ...]
    compared: tuple[int, ...] = ()
    faint: tuple[int, ...] = ()

    @property
    def settles(self) -> bool:
        """Whether the run is evidence, so that no other arguments need be tried."""
        return bool(self.compared) or self.empty or bool(self.differences)


def compare(
    a: Sequence[Any],
    b: Sequence[Any],
    sample: Sample,
    outputs: Sequence[Variable],
    names: Sequence[str | None],
    rtol: float | None = None,
) -> Comparison:
    """Compare the values of all outputs of one run.

    They may be apart by a fraction ``rtol`` of themselves, or by what rounding explains.

    With ``specials`` the arguments hold infinities. Whether a sum of them is NaN or infinite
    depends on the order of evaluation, so NaN and infinity then count as equal.
    """
    identical, empty = True, True
    differences: list[Difference] = []
    compared, faint = [], []
    for position, (left, right) in enumerate(zip(a, b, strict=True)):
        if isinstance(left, np.ndarray | np.generic):
            left, right = np.asarray(left), np.asarray(right)
            same = _same_bits(left, right)
            empty &= left.size == 0
            facts = None if same else _array_difference(left, right, sample.specials, rtol)
            if not (same or facts or _exceeds_rounding(left)):
                faint.append(position)
            elif np.isfinite(left).any():
                compared.append(position)
        else:
            same, facts = _compare_states(left, right, outputs[position])
            empty = False
            compared.append(position)
        identical &= same
        if facts is not None:
            differences.append(
                Difference(
                    run=sample.run,
                    arguments=sample.text,
                    output=position,
                    name=names[position],
                    **facts,
                )
            )
    return Comparison(identical, empty, tuple(differences), tuple(compared), tuple(faint))


def _same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype.kind not in "fc":
        return bool((a == b).all())
    parts = (a.real, b.real), (a.imag, b.imag)
    return all(
        bool((((x == y) & (np.signbit(x) == np.signbit(y))) | (np.isnan(x) & np.isnan(y))).all())
        for x, y in parts[: 1 + (a.dtype.kind == "c")]
    )


def _array_difference(
    a: np.ndarray, b: np.ndarray, specials: bool, rtol: float | None
) -> dict[str, Any] | None:
    """Return the fields of the `Difference` between two arrays; ``None`` if within tolerance."""
    if a.dtype != b.dtype:
        return {"kind": DifferenceKind.DTYPE, "a": str(a.dtype), "b": str(b.dtype)}
    if a.shape != b.shape:
        return {"kind": DifferenceKind.SHAPE, "a": str(a.shape), "b": str(b.shape)}
    if a.dtype.kind in "biu":
        wrong = a != b
        deviation = np.abs(a.astype(float) - b.astype(float))
    else:
        deviation, wrong = _deviation(a, b, specials, rtol)
    if not wrong.any():
        return None
    # An infinite deviation (see `_deviation`) counts as the largest.
    where = np.unravel_index(np.argmax(np.where(wrong, deviation, -1)), a.shape)
    finite = wrong & np.isfinite(deviation)
    size = np.maximum(np.abs(a), np.abs(b))[finite].astype(float)
    error = deviation[finite]
    return {
        "kind": DifferenceKind.VALUES,
        "where": tuple(int(index) for index in where),
        "a": repr(a[where].item()),
        "b": repr(b[where].item()),
        "elements": int(wrong.sum()),
        "abs_error": float(error.max()) if error.size else None,
        "rel_error": float((error / np.where(size == 0, 1, size)).max()) if error.size else None,
    }


def _deviation(
    a: np.ndarray, b: np.ndarray, specials: bool, rtol: float | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return ``|a - b|``, and a mask of the elements out of tolerance.

    Where a side is NaN or infinite, the deviation is 0 if both count as equal, else infinite.
    """
    with np.errstate(all="ignore"):
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        if specials:
            same |= (np.isnan(a) & np.isinf(b)) | (np.isinf(a) & np.isnan(b))
        finite = np.isfinite(a) & np.isfinite(b)
        deviation = np.where(finite, np.abs(a - b), np.where(same, 0.0, np.inf)).astype(float)
        size = np.where(finite, np.maximum(np.abs(a), np.abs(b)), 0.0).astype(float)
    real = a.real.dtype
    scale = max(1.0, float(size.max(initial=0.0)))
    relative = _RELATIVE.get(real, 1e-9) if rtol is None else rtol
    allowed = relative * size + _ULPS * float(np.finfo(real).eps) * scale
    return deviation, ~same & (deviation > allowed)


def _exceeds_rounding(values: np.ndarray) -> bool:
    """Whether some number exceeds a rounding error of 1; always true for exact dtypes."""
    if values.dtype.kind not in "fc":
        return True
    least = _ULPS * float(np.finfo(values.real.dtype).eps)
    return bool((np.isfinite(values) & (np.abs(values) > least)).any())


def _compare_states(a: Any, b: Any, output: Variable) -> tuple[bool, dict[str, Any] | None]:
    """Compare values that are not arrays: generators by state, others by their type's equality."""
    if isinstance(a, np.random.Generator) and isinstance(b, np.random.Generator):
        states = [plain_state(rng.bit_generator.state) for rng in (a, b)]
        same = states[0] == states[1]
        texts = [str(state) for state in states]
    else:
        same = bool(output.type.values_eq(a, b))
        texts = [repr(a), repr(b)]
    if same:
        return True, None
    return False, {"kind": DifferenceKind.STATE, "a": texts[0][:200], "b": texts[1][:200]}
