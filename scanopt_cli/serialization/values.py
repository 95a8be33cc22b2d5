"""Recorded values beside a captured graph: ``NAME.scanopt`` and ``NAME.values.npz``."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from scanopt_cli.errors import LoadError, brief
from scanopt_cli.serialization.archives import KINDS, array_of, members_of
from scanopt_cli.serialization.files import Blob, values_path
from scanopt_cli.serialization.unpickler.generators import generator_from_state, plain_state
from scanopt_cli.serialization.writing import write_atomically

_MAX_CALLS = 1000


def write_values(path: Path, calls: Sequence[Sequence[Any]]) -> Path | None:
    """Write the arguments of ``calls`` beside the graph file ``path``.

    Returns the file's path, or ``None``, and no file, if `values_file` has none for them.

    Raises
    ------
    ScanoptError
        If the file cannot be written.
    """
    data = values_file(calls)
    if data is None:
        return None
    target = values_path(path)
    write_atomically(target, data)
    return target


def values_file(calls: Sequence[Sequence[Any]]) -> bytes | None:
    """Return the ``.npz`` file of the arguments of ``calls``, in which nothing is pickled.

    Each call lists one value for each input of the graph: a number, an array of booleans or
    numbers, or a `numpy.random.Generator`, which is written by its state. ``None`` if there are no
    calls, or a value is of another kind.
    """
    members: dict[str, Any] = {}
    for number, call in enumerate(calls):
        for position, value in enumerate(call):
            if isinstance(value, np.random.Generator):
                text = json.dumps(plain_state(value.bit_generator.state))
                members[f"{number}.{position}.rng"] = np.array(text)
                continue
            array = np.asarray(value)
            if array.dtype.kind not in KINDS:
                return None
            members[f"{number}.{position}"] = array
    if not members:
        return None
    stream = io.BytesIO()
    np.savez(stream, allow_pickle=False, **members)
    return stream.getvalue()


def calls_of(file: Blob, n_inputs: int) -> tuple[tuple[Any, ...], ...]:
    """Return the calls that `write_values` wrote beside a graph file.

    Each call is a tuple of ``n_inputs`` arrays and generators. No values mean no calls.

    Raises
    ------
    LoadError
        If the values are damaged, too large, or do not fit a graph of ``n_inputs`` inputs.
    """
    try:
        match file.values:
            case None:
                return ()
            case LoadError() as error:
                raise error
        most = _MAX_CALLS * max(n_inputs, 1)
        found = members_of(file.values, most, f"{_MAX_CALLS} calls")
        members = {
            name.removesuffix(".npy"): array_of(data, with_text=True)
            for name, data in found.items()
        }
        if not members or len(members) % max(n_inputs, 1):
            raise ValueError(f"it does not hold {n_inputs} values a call")
        return tuple(
            tuple(_value(members, f"{call}.{position}") for position in range(n_inputs))
            for call in range(len(members) // n_inputs)
        )
    except Exception as error:
        reason = error.what if isinstance(error, LoadError) else brief(error)
        raise LoadError(
            f"recorded values cannot be used: {reason}",
            where=str(values_path(Path(file.name))),
            hint="capture the graph again, or delete the file",
        ) from None


def _value(members: dict[str, Any], key: str) -> Any:
    if f"{key}.rng" in members:
        return generator_from_state(json.loads(str(members[f"{key}.rng"])))
    if key not in members:
        raise ValueError(f"value {key} is missing")
    if members[key].dtype.kind == "U":
        raise ValueError(f"value {key} is text")
    return members[key]
