"""A bound on the text in a pickle, before it is decoded."""

from __future__ import annotations

import io

_MOST_TEXT = 1 << 20
"""How many bytes one text, or one number, may have; arrays are written as bytes."""
_MOST_TEXT_IN_ALL = 1 << 26
_SHORT = 255
_OF_BYTES = (b"B", b"\x8e", b"\x96")
"""The opcodes BINBYTES, BINBYTES8 and BYTEARRAY8."""


class TextBoundedStream(io.BytesIO):
    """Gives `pickletools` no more text to decode than a graph may have: it may swell fourfold."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self._data = data
        self._left = _MOST_TEXT_IN_ALL

    def read(self, size: int | None = -1, /) -> bytes:
        """Return the next ``size`` bytes; `ValueError` if they are too much text."""
        if size is not None and size > _SHORT and not self._is_of_bytes():
            self._spend(size)
        return super().read(size)

    def readline(self, size: int | None = -1, /) -> bytes:
        """Return the next line; `ValueError` if it is too much text."""
        line = super().readline(size if 0 <= (size or -1) <= _MOST_TEXT else _MOST_TEXT + 1)
        self._spend(len(line))
        return line

    def _spend(self, size: int) -> None:
        self._left -= size
        if size > _MOST_TEXT or self._left < 0:
            raise ValueError("it has more text than a graph (arrays are text below protocol 3)")

    def _is_of_bytes(self) -> bool:
        """Whether what comes next is the argument of an opcode of bytes.

        In front of it stand the opcode and a length of 4 or 8 bytes, least significant first; no
        file is so large that the last four of 8 are not zero.
        """
        here = self.tell()
        width = 8 if self._data[max(here - 4, 0) : here] == bytes(4) else 4
        return self._data[max(here - width - 1, 0) : here - width] in _OF_BYTES
