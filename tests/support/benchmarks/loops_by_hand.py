"""Loops by hand, for Numba: a value and its derivatives, which run along with the states."""

from __future__ import annotations

from math import exp, log, log1p
from typing import Any

import numba
import numpy as np


@numba.njit
def rescorla_wagner(c: Any, r: Any, q: Any, alpha: Any, beta: Any) -> Any:
    """Also returns the derivatives by ``alpha`` and ``beta``."""
    rate, scale = alpha.item(), beta.item()
    values, slopes = q.copy(), np.zeros_like(q)
    total, by_alpha, by_beta = 0.0, 0.0, 0.0
    for t in range(len(c)):
        top = scale * values.max()
        weights = np.exp(scale * values - top)
        norm = weights.sum()
        chosen, missed = values[c[t]], r[t] - values[c[t]]
        total += scale * chosen - top - log(norm)
        by_beta += chosen - (weights * values).sum() / norm
        by_alpha += scale * (slopes[c[t]] - (weights * slopes).sum() / norm)
        slopes[c[t]] += missed - rate * slopes[c[t]]
        values[c[t]] += rate * missed
    return np.array(total), np.array(by_alpha), np.array(by_beta)


@numba.njit
def garch(r: Any, v: Any, omega: Any, alpha: Any, beta: Any) -> Any:
    """Also returns the derivatives by ``omega``, ``alpha`` and ``beta``."""
    variance, shift, of_square, kept = v.item(), omega.item(), alpha.item(), beta.item()
    a, b, c = 0.0, 0.0, 0.0  # the derivatives of the variance
    total, by_omega, by_alpha, by_beta = 0.0, 0.0, 0.0, 0.0
    for t in range(len(r)):
        square = r[t] * r[t]
        a, b, c = 1 + kept * a, square + kept * b, variance + kept * c
        variance = shift + of_square * square + kept * variance
        total -= 0.5 * (log(variance) + square / variance)
        slope = 0.5 * (square / variance - 1) / variance
        by_omega, by_alpha, by_beta = (
            by_omega + slope * a,
            by_alpha + slope * b,
            by_beta + slope * c,
        )
    return np.array(total), np.array(by_omega), np.array(by_alpha), np.array(by_beta)


@numba.njit
def garch_chains(r: Any, v: Any, omega: Any, alpha: Any, beta: Any) -> Any:
    """The same of several chains, whose values are added up."""
    variance, a, b, c = v.copy(), np.zeros_like(v), np.zeros_like(v), np.zeros_like(v)
    by_omega, by_alpha, by_beta = np.zeros_like(v), np.zeros_like(v), np.zeros_like(v)
    total = 0.0
    for t in range(len(r)):
        for k in range(len(v)):
            square = r[t, k] * r[t, k]
            a[k], b[k] = 1 + beta[k] * a[k], square + beta[k] * b[k]
            c[k] = variance[k] + beta[k] * c[k]
            new = omega[k] + alpha[k] * square + beta[k] * variance[k]
            variance[k] = new
            total -= 0.5 * (log(new) + square / new)
            slope = 0.5 * (square / new - 1) / new
            by_omega[k] += slope * a[k]
            by_alpha[k] += slope * b[k]
            by_beta[k] += slope * c[k]
    return np.array(total), by_omega, by_alpha, by_beta


@numba.njit
def smoothing(y: Any, level: Any, alpha: Any) -> Any:
    """Also returns the derivatives by ``level`` and ``alpha``."""
    now, rate = level.item(), alpha.item()
    a, b = 1.0, 0.0  # the derivatives of the level
    total, by_level, by_alpha = 0.0, 0.0, 0.0
    for t in range(len(y)):
        error = y[t] - now
        total -= 0.5 * error * error
        by_level, by_alpha = by_level + error * a, by_alpha + error * b
        a, b = a - rate * a, b + error - rate * b
        now += rate * error
    return np.array(total), np.array(by_level), np.array(by_alpha)


@numba.njit
def adstock(spent: Any, sold: Any, stock: Any, kept: Any, effect: Any) -> Any:
    """Also returns the derivatives by ``kept`` and ``effect``."""
    now, share, size = stock.item(), kept.item(), effect.item()
    a = 0.0  # the derivative of the stock
    total, by_kept, by_effect = 0.0, 0.0, 0.0
    for t in range(len(spent)):
        a = now + share * a
        now = spent[t] + share * now
        error = sold[t] - size * log1p(now)
        total -= 0.5 * error * error
        by_kept += error * size * a / (1 + now)
        by_effect += error * log1p(now)
    return np.array(total), np.array(by_kept), np.array(by_effect)


@numba.njit
def hawkes(waited: Any, excited: Any, mu: Any, alpha: Any, beta: Any) -> Any:
    """Also returns the derivatives by ``mu``, ``alpha`` and ``beta``."""
    now, base, jump, decay = excited.item(), mu.item(), alpha.item(), beta.item()
    a = 0.0  # the derivative of the excitement
    total, by_mu, by_alpha, by_beta = 0.0, 0.0, 0.0, 0.0
    for t in range(len(waited)):
        left = exp(-decay * waited[t])
        a = left * (a - waited[t] * (1 + now))
        now = left * (1 + now)
        rate = base + jump * now
        total += log(rate) - base * waited[t]
        by_mu += 1 / rate - waited[t]
        by_alpha, by_beta = by_alpha + now / rate, by_beta + jump * a / rate
    return np.array(total), np.array(by_mu), np.array(by_alpha), np.array(by_beta)
