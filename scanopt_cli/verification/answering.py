"""The child's side of `scanopt_cli.verification.talking_child`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from scanopt_cli.verification.child_process import MEMORY, limit_process, read_request
from scanopt_cli.verification.talking_child import ERROR, OUT_OF_MEMORY
from scanopt_cli.verification.worker import error_text

type Answers = Callable[[str, Mapping[str, Any]], Mapping[str, Any]]
"""What carries out an order with its details, and returns the answer."""


def answer_orders(directory: str, begin: Callable[[Any], Answers]) -> None:
    """Be the child: ``begin`` with the request, and answer orders by what that returns.

    What raises an error is answered by the error, and the next order is awaited.
    """
    orders, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    # What a graph reads and prints.
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1):
        os.dup2(nothing, descriptor)
    request = read_request(directory)
    limit_process(request.timeout, getattr(request, "memory", MEMORY))
    carry_out = begin(request)
    for line in orders:
        details = json.loads(line)
        try:
            answer = carry_out(details.pop("order"), details)
        except MemoryError:
            answer = {ERROR: OUT_OF_MEMORY}
        except Exception as error:
            answer = {ERROR: error_text(error)}
        answers.write(json.dumps(answer).encode() + b"\n")
        answers.flush()
    sys.stderr.flush()
    os._exit(0)  # nothing is left to be done, whatever threads a graph has started
