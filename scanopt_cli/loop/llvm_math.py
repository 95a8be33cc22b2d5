"""LLVM's code for `VectorFunction`: arithmetic without calls, and without branches.

Only a vector of logarithms has one: for numbers that are not positive and finite.

The exponential function is reduced by Cody and Waite's method, ``x = n log(2) + r`` with
``abs(r) <= log(2) / 2``, and computed by its Taylor series. The logarithm is
``n log(2) + log(m)`` with ``sqrt(1/2) <= m < sqrt(2)``, by a polynomial in the square of
``(m - 1) / (m + 1)``, whose quotients are computed beside products and sums. Few operations wait
for each other, since the next step of a loop waits for the result. Errors are within 1 unit in the
last place for exp and log, 2 for expm1, log1p and sigmoid, 3 for tanh.
"""

from __future__ import annotations

from collections.abc import Callable
from math import factorial, inf, nan

import numpy as np

from scanopt_cli.loop.llvm_values import Value

_LOG2_E = 1.4426950408889634
# log(2) in two parts; the first has zeros at its end, so that n times it is exact.
_LOG_2_HIGH, _LOG_2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
# Of smaller arguments, ``exp(x) - 1``, tanh and log1p are the argument. Arithmetic takes a hundred
# times as long on numbers so small that they have fewer digits.
_TINY = 2.0**-60
# A float64 of this size has no digits behind the point: adding it rounds.
_ROUNDS = 1.5 * 2.0**52
_ROUNDS_BITS = int(np.float64(_ROUNDS).view(np.int64))
_2, _3, _4, _5, _6, _7, _8, _9, _10, _11, _12, _13 = (1 / factorial(k) for k in range(2, 14))


# All bits but that of the sign.
_SIZE = (1 << 63) - 1


def _abs(x: Value) -> Value:
    return (x.bits & _SIZE).number


def _tiny_is_zero(x: Value) -> Value:
    return x.where(_abs(x) < _TINY, 0.0)


def _power_of_2(n: Value) -> Value:
    return ((n + 1023) << 52).number


def _reduced(x: Value) -> tuple[Value, Value]:
    """Return ``n`` and ``exp(r) - 1``, of ``x`` that is ``n log(2) + r``; 0 if ``x`` is tiny.

    For infinite ``x``, both are unspecified.
    """
    x = _tiny_is_zero(x)
    shifted = x * _LOG2_E + _ROUNDS
    n = shifted - _ROUNDS
    r = (x - n * _LOG_2_HIGH) - n * _LOG_2_LOW
    r2 = r * r
    r4 = r2 * r2
    low = (0.5 + r * _3) + r2 * (_4 + r * _5)
    middle = (_6 + r * _7) + r2 * (_8 + r * _9)
    high = (_10 + r * _11) + r2 * (_12 + r * _13)
    return shifted.bits - _ROUNDS_BITS, r + r2 * (low + r4 * (middle + r4 * high))


def exp(x: Value) -> Value:
    """Return the exponential function."""
    n, rest = _reduced(x)
    # In two steps: 2**n may be too large or too small for a float64 where exp(x) is not. The shift
    # is one of a positive number, since vectors of int64 have no other before AVX-512.
    half = ((n + 4096) >> 1) - 2048
    power = _power_of_2(half)
    made = (power + power * rest) * _power_of_2(n - half)
    is_large, is_small = x > 710.0, x < -746.0
    return made.where(is_large | is_small, x.where(is_large, inf).where(is_small, 0.0))


def expm1(x: Value) -> Value:
    """Return ``exp(x) - 1``."""
    y = x.where(x < -40.0, -40.0)
    y = y.where(y > 710.0, 710.0)
    n, rest = _reduced(y)
    half = _power_of_2(n - 1)
    return (((half - 0.5) + half * rest) * 2.0).where(_abs(x) < _TINY, x)


def tanh(x: Value) -> Value:
    """Return the hyperbolic tangent."""
    y = _abs(x)
    y = y.where(y > 22.0, 22.0)
    n, rest = _reduced(2.0 * y)
    power = _power_of_2(n)
    above = (power - 1.0) + power * rest
    size = _abs(above / (above + 2.0))
    signed = (size.bits | (x.bits & ~_SIZE)).number
    return signed.where(_abs(x) < _TINY, x)


def sigmoid(x: Value) -> Value:
    """Return ``1 / (1 + exp(-x))``."""
    return 1.0 / (1.0 + exp(-x))


# The bits of sqrt(1/2), from those of 1.
_SQRT_HALF_BITS = int((np.float64(1.0).view(np.int64)) - np.float64(np.sqrt(0.5)).view(np.int64))
_SMALLEST = float(np.finfo(np.float64).smallest_normal)
_SMALLEST_BITS, _ONE_BITS, _2_52_BITS, _INFINITY_BITS = (
    int(np.float64(x).view(np.int64)) for x in (_SMALLEST, 1.0, 2.0**52, inf)
)
# The bits of a float64 behind those of its exponent.
_DIGITS = (1 << 52) - 1
# With s = f / (2 + f), log(1 + f) is 2 s + s**3 p(s**2): the polynomial p of which the largest
# relative error of log(1 + f) between sqrt(1/2) - 1 and sqrt(2) - 1 is the least, 0.011 units, by
# Remez's algorithm.
_LOG = (
    0.6666666666666734,
    0.3999999999941469,
    0.2857142874238511,
    0.22222198573351978,
    0.18183564320816914,
    0.15314050623490924,
    0.14795949478481457,
)


def log(x: Value) -> Value:
    """Return the natural logarithm."""
    # Numbers from the smallest normal one to the largest, and no others, have these bits.
    is_normal = (x.bits - _SMALLEST_BITS).is_below(_INFINITY_BITS - _SMALLEST_BITS)
    return x.mostly(is_normal, _log_of_normal, _log_of_any)


def _log_of_normal(x: Value) -> Value:
    """Return the logarithm of a number that is positive, finite and not subnormal."""
    return _log_of_parts(*_parts(x))


def _log_of_any(x: Value) -> Value:
    is_small = x < _SMALLEST
    scaled = x.where(is_small, x * 2.0**54)
    f, n = _parts(scaled)
    made = _log_of_parts(f, n.where(is_small, n - 54.0))
    others = x.where(x < 0.0, nan).where(x.is_equal(0.0), -inf)
    is_number = (scaled.bits - _SMALLEST_BITS).is_below(_INFINITY_BITS - _SMALLEST_BITS)
    return others.where(is_number, made)


def _parts(x: Value) -> tuple[Value, Value]:
    """Return ``f`` and ``n`` of ``x``, which is ``2**n (1 + f)``."""
    shifted = x.bits + _SQRT_HALF_BITS
    n = (shifted.shifted_right(52) | _2_52_BITS).number - (2.0**52 + 1023.0)
    return ((shifted & _DIGITS) + (_ONE_BITS - _SQRT_HALF_BITS)).number - 1.0, n


def _log_of_parts(f: Value, n: Value) -> Value:
    """Return the logarithm of ``2**n (1 + f)``."""
    s = f / (2.0 + f)
    z = s * s
    z2 = z * z
    p0, p1, p2, p3, p4, p5, p6 = _LOG
    p = (p0 + z * p1) + z2 * ((p2 + z * p3) + z2 * ((p4 + z * p5) + z2 * p6))
    # 2 s is f - s f, in which f has no error (Ng, in FreeBSD's e_log.c).
    return n * _LOG_2_HIGH - ((s * (f - z * p) - n * _LOG_2_LOW) - f)


def log1p(x: Value) -> Value:
    """Return ``log(1 + x)``."""
    u = 1.0 + _tiny_is_zero(x)
    rest = (x - (u - 1.0)) / u
    made = log(u) + rest.where(~(_abs(rest) < 1.0), 0.0)
    return made.where(_abs(x) < _TINY, x)


OF_VALUES: dict[str, Callable[[Value], Value]] = {
    "exp": exp,
    "expm1": expm1,
    "log": log,
    "log1p": log1p,
    "sigmoid": sigmoid,
    "tanh": tanh,
}
"""What writes LLVM's code for a function, by name."""
