"""Ops of graphs that are gone, which PyTensor's rewriters keep.

A rewriter notes for each Op that it meets which rewrites are for it, and its note has no limit.
Rewriters of PyTensor's databases are there as long as the process. So each Scan that they have met
stays, with its body.
"""

from __future__ import annotations

import gc

from pytensor.graph.rewriting.basic import OpToRewriterTracker


def forget_ops() -> None:
    """Let all rewriters forget which Ops they have met; they find out again what is for one.

    It looks through all objects of the process, which takes some hundredths of a second.
    """
    for each in gc.get_objects():
        if isinstance(each, OpToRewriterTracker):
            # In other versions of PyTensor it may be a plain function.
            clear = getattr(each.get_trackers, "cache_clear", None)
            if clear is not None:
                clear()
