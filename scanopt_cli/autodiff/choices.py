"""What a user of `grad` chooses from. Importing it does not import PyTensor."""

from __future__ import annotations

from enum import StrEnum


class Strategy(StrEnum):
    """How a derivative is built.

    ``reverse`` repeats reverse mode, which doubles the loops with each order. ``forward`` repeats
    forward mode, which keeps one loop and doubles its states. ``taylor`` is ``forward`` with equal
    states merged and the body simplified after each order: n+1 states for each state.
    ``forward-over-reverse`` takes the tangents of one gradient: two loops for each loop at any
    order. ``auto`` leaves the choice to `choose`.
    """

    REVERSE = "reverse"
    FORWARD = "forward"
    FORWARD_OVER_REVERSE = "forward-over-reverse"
    TAYLOR = "taylor"
    AUTO = "auto"


class Stage(StrEnum):
    """The rewrites that a graph goes through before its statistics are collected.

    ``raw``: none; these statistics are always collected. ``pytensor``: the rewrites of the current
    mode, without those that work in place, which change no counts. ``scanopt``: `optimize` with the
    preset ``grad``. ``both``: ``scanopt``, then ``pytensor``. Compare ``pytensor`` with ``both``:
    PyTensor fuses elementwise nodes, which scanopt leaves to it.
    """

    RAW = "raw"
    PYTENSOR = "pytensor"
    SCANOPT = "scanopt"
    BOTH = "both"
