"""Zip archives and NumPy's arrays in them, read in bounded memory.

An archive holds its members one behind the other, then its directory, and nothing else: no gaps, no
overlaps, no second member of a name, nothing behind the end. Each member unpacks to as many bytes
as it declares, all of them to no more than `MAX_BYTES`, and that is checked before any is unpacked.
"""

from __future__ import annotations

import io
import warnings
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from scanopt_cli.serialization.files import MAX_BYTES, is_bomb
from scanopt_cli.serialization.unpickler.arrays import array_from

KINDS = "biufc"
"""The kinds of NumPy's dtypes that files hold: booleans and numbers."""

_END = 22
"""How many bytes the last record of a zip file has, without a comment."""
_LOCAL = 30
"""How many bytes stand in front of a member's name."""
_MOST_PER_ENTRY = 200
"""How many bytes an entry takes in a zip file's directory; ours take 60."""
_LONGEST_HEADER = 512
"""How many bytes the header of an array may have; NumPy writes 128."""
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED = 1
_DATE = (1980, 1, 1, 0, 0, 0)
_MODE = 0o644 << 16
_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def packed(members: Mapping[str, bytes]) -> bytes:
    """Return a zip archive of ``members``, the same bytes each time.

    Tables in JSON are compressed, unless they would unpack to more than `members_of` lets pass.
    Arrays are stored as they are.
    """
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, data in members.items():
            info = zipfile.ZipInfo(name, _DATE)
            info.create_system, info.external_attr = 3, _MODE
            if name.endswith(".json") and not is_bomb(len(data), len(zlib.compress(data))):
                info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, data)
    return stream.getvalue()


def members_of(data: bytes, most: int, of_what: str) -> dict[str, bytes]:
    """Return the members of a zip archive by name.

    Raises
    ------
    Exception
        Of some kind, if it is no archive as described above, if it has more than ``most`` members,
        which ``of_what`` names, or if one is damaged.
    """
    # ZipFile reads the whole directory before it says how many entries there are.
    end = len(data) - _END
    if data[end : end + 4] != b"PK\x05\x06" or data[end - 20 : end - 16] == b"PK\x06\x07":
        raise ValueError("it is no zip file, or a huge one, or has more behind its end")
    size, offset = (int.from_bytes(data[end + i : end + i + 4], "little") for i in (12, 16))
    if size > most * _MOST_PER_ENTRY:
        raise ValueError(f"it holds more than {of_what}")
    if offset + size != end:
        raise ValueError("its directory is not where it says")
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        infos = archive.infolist()
        if len(infos) > most:
            raise ValueError(f"it holds more than {of_what}")
        if any(info.compress_type not in _COMPRESSIONS for info in infos):
            raise ValueError("it is compressed in a way that is not read")
        if any(info.flag_bits & _ENCRYPTED for info in infos):
            raise ValueError("it is encrypted")
        if len({info.filename for info in infos}) < len(infos):
            raise ValueError("it has two members of one name")
        total = sum(info.file_size for info in infos)
        if total > MAX_BYTES:
            raise ValueError(f"it holds more than {MAX_BYTES:,} bytes")
        if is_bomb(total, len(data)):
            raise ValueError("it unpacks to far more than its size")
        _check_places(data, infos, offset)
        return {info.filename: _unpacked(archive, info) for info in infos}


def _check_places(data: bytes, infos: list[zipfile.ZipInfo], end: int) -> None:
    """Check that the members lie one behind the other, from the first byte to the directory."""
    here = 0
    for info in sorted(infos, key=lambda info: info.header_offset):
        if info.header_offset != here:
            raise ValueError("its members overlap, or there is something between them")
        name, extra = (int.from_bytes(data[here + i : here + i + 2], "little") for i in (26, 28))
        here += _LOCAL + name + extra + info.compress_size
    if here != end:
        raise ValueError("there is something between its members and its directory")


def _unpacked(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    """Return the contents of a member, which may unpack to more than it says."""
    with archive.open(info) as member:
        data = member.read(info.file_size + 1)
    if len(data) != info.file_size:
        raise ValueError(f"{info.filename[:100]} is not as long as it says")
    return data


def npy(array: np.ndarray[Any, Any]) -> bytes:
    """Return the ``.npy`` file of an array of numbers, least significant bytes first."""
    stream = io.BytesIO()
    little = array.astype(array.dtype.newbyteorder("<"), order="K", copy=False)
    np.lib.format.write_array(stream, little, version=(1, 0), allow_pickle=False)
    return stream.getvalue()


def array_of(data: bytes, *, with_text: bool = False) -> np.ndarray[Any, Any]:
    """Return the array in the ``.npy`` file ``data``; one of text only if ``with_text``.

    Raises
    ------
    Exception
        Of some kind, if it is none, or has not as many bytes as it declares.
    """
    stream = io.BytesIO(data)
    version = np.lib.format.read_magic(stream)
    if version not in _HEADERS:
        raise ValueError(f"version {version} of NumPy's format")
    if len(data[: data.find(b"\n") + 1]) > _LONGEST_HEADER or b"\n" not in data[:_LONGEST_HEADER]:
        raise ValueError("an array with a header that NumPy does not write")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shape, is_fortran, dtype = _HEADERS[version](stream)
    if dtype.kind not in (f"{KINDS}U" if with_text else KINDS) or dtype.subdtype is not None:
        raise ValueError(f"an array of {dtype}")
    return array_from(stream.read(), dtype, shape, "F" if is_fortran else "C")
