"""Recorded values beside a captured graph: ``NAME.pkl`` and ``NAME.values.npz``."""

from __future__ import annotations

import io
import json
import warnings
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from scanopt_cli.errors import LoadError, brief
from scanopt_cli.serialization.files import MAX_BYTES, read_bytes, values_path
from scanopt_cli.serialization.unpickler.arrays import array_from
from scanopt_cli.serialization.unpickler.generators import generator_from_state, plain_state
from scanopt_cli.serialization.writing import write_atomically

_END_OF_ZIP = 22 + 65_535
"""How far from the end of a zip file its last record may begin: that record, and a comment."""
_MOST_PER_ENTRY = 200
"""How many bytes an entry takes in a zip file's directory; ours take 60."""
_LONGEST_HEADER = 512
"""How many bytes the header of an array may have; NumPy writes 128."""
_KINDS = "biufc"
_MAX_CALLS = 1000
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def write_values(path: Path, calls: Sequence[Sequence[Any]]) -> Path | None:
    """Write the arguments of ``calls`` beside the graph file ``path``.

    Each call lists one value for each input of the graph: a number, an array of booleans or
    numbers, or a `numpy.random.Generator`. Returns the file's path, or ``None``, and no file, if
    there are no calls or a value is of another kind.

    Raises
    ------
    ScanoptError
        If the file cannot be written.
    """
    members: dict[str, Any] = {}
    for number, call in enumerate(calls):
        for position, value in enumerate(call):
            if isinstance(value, np.random.Generator):
                text = json.dumps(plain_state(value.bit_generator.state))
                members[f"{number}.{position}.rng"] = np.array(text)
                continue
            array = np.asarray(value)
            if array.dtype.kind not in _KINDS:
                return None
            members[f"{number}.{position}"] = array
    if not members:
        return None
    stream = io.BytesIO()
    np.savez(stream, allow_pickle=False, **members)
    target = values_path(path)
    write_atomically(target, stream.getvalue())
    return target


def read_values(path: Path, n_inputs: int) -> tuple[tuple[Any, ...], ...]:
    """Return the calls that `write_values` wrote beside the graph file ``path``.

    Each call is a tuple of ``n_inputs`` arrays and generators. No file means no calls.

    Raises
    ------
    LoadError
        If the file is damaged, too large, or does not fit a graph of ``n_inputs`` inputs.
    """
    source = values_path(path)
    try:
        if not source.exists():
            return ()
        members = _members(read_bytes(source), most=_MAX_CALLS * max(n_inputs, 1))
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
            where=str(source),
            hint="capture the graph again, or delete the file",
        ) from None


def _members(data: bytes, most: int) -> dict[str, np.ndarray[Any, Any]]:
    """Return the arrays of an ``.npz`` file by name; each has as many bytes as it declares."""
    # ZipFile reads the whole directory before it says how many entries there are.
    end = data.rfind(b"PK\x05\x06", -_END_OF_ZIP)
    if end < 0 or data[end - 20 : end - 16] == b"PK\x06\x07":
        raise ValueError("it is no zip file, or a huge one")
    if int.from_bytes(data[end + 12 : end + 16], "little") > most * _MOST_PER_ENTRY:
        raise ValueError(f"it holds more than {_MAX_CALLS} calls")
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        infos = archive.infolist()
        if len(infos) > most:
            raise ValueError(f"it holds more than {_MAX_CALLS} calls")
        if any(info.compress_type not in _COMPRESSIONS for info in infos):
            raise ValueError("it is compressed in a way that NumPy does not use")
        if sum(info.file_size for info in infos) > MAX_BYTES:
            raise ValueError(f"it holds more than {MAX_BYTES:,} bytes")
        return {
            info.filename.removesuffix(".npy"): _array(_unpacked(archive, info)) for info in infos
        }


def _unpacked(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    """Return the contents of a member, which may unpack to more than it says."""
    with archive.open(info) as member:
        data = member.read(info.file_size + 1)
    if len(data) != info.file_size:
        raise ValueError(f"{info.filename[:100]} is not as long as it says")
    return data


def _array(data: bytes) -> np.ndarray[Any, Any]:
    """Return the array in the ``.npy`` file ``data``."""
    stream = io.BytesIO(data)
    version = np.lib.format.read_magic(stream)
    if version not in _HEADERS:
        raise ValueError(f"version {version} of NumPy's format")
    if len(data[: data.find(b"\n") + 1]) > _LONGEST_HEADER or b"\n" not in data[:_LONGEST_HEADER]:
        raise ValueError("an array with a header that NumPy does not write")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shape, is_fortran, dtype = _HEADERS[version](stream)
    if dtype.kind not in f"{_KINDS}U" or dtype.subdtype is not None:
        raise ValueError(f"an array of {dtype}")
    return array_from(stream.read(), dtype, shape, "F" if is_fortran else "C")


def _value(members: dict[str, Any], key: str) -> Any:
    if f"{key}.rng" in members:
        return generator_from_state(json.loads(str(members[f"{key}.rng"])))
    if key not in members:
        raise ValueError(f"value {key} is missing")
    if members[key].dtype.kind == "U":
        raise ValueError(f"value {key} is text")
    return members[key]
