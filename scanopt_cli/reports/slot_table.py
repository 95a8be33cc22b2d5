"""The slots of one loop in a table, those that an array was split into in one row."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from scanopt_cli.analysis.expression_text import LONGEST, at_tap
from scanopt_cli.analysis.inspection import ScanReport, SlotReport
from scanopt_cli.reports.document import Block, Column, Item, Line, Paragraph, Span, Style, Table
from scanopt_cli.text import cut, size_text

_COLUMNS = (
    Column("kind", wraps=False),
    Column("name"),
    Column("taps", wraps=False),
    Column("dtype", wraps=False),
    Column("shape"),
    Column("rows"),
    Column("bytes"),
    Column("fed by"),
    Column("inside"),
    Column("read by"),
)
# How many columns form a slot's first line if there is no room for a table.
_SHORT = 7
# In a narrower table each cell would be only a few letters wide.
_TABLE_WIDTH = 140


def slot_table(scan: ScanReport) -> Table:
    """Return the slots of a loop in a table, or in some lines each where there is no room."""
    rows = slot_rows(scan)
    items: list[Block] = [*map(_item, rows), Paragraph()]
    return Table(_COLUMNS, rows, least_width=_TABLE_WIDTH, otherwise=items)


def slot_rows(scan: ScanReport) -> list[tuple[str, ...]]:
    """Return the texts of each slot for each column; an array that was split is one row."""
    return [_cells(slots) for slots in split_slots(scan)]


def split_slots(scan: ScanReport) -> list[list[SlotReport]]:
    """Return each slot of a loop, and together those that an array was split into."""
    arrays: dict[object, list[SlotReport]] = {}
    for place, slot in enumerate(scan.slots):
        key = place if slot.entry is None else (slot.kind, slot.entry.array, len(slot.entry.place))
        arrays.setdefault(key, []).append(slot)
    return list(arrays.values())


def _item(cells: Sequence[str]) -> Item:
    """Return a few lines for one slot."""
    kind, name, taps, dtype, shape, rows, size, *long = cells
    is_one = rows.split(" ")[0] == "1"
    number = f"{dtype} {shape}".rstrip()
    kept = rows and f"{rows} {'row' if is_one else 'rows'}"
    facts = ", ".join(filter(None, (taps, number, kept, size)))
    first: Line = [f"{kind:8} ", Span(name, Style.STRONG), f"  {facts}" if facts else ""]
    columns = zip(_COLUMNS[_SHORT:], long, strict=True)
    notes = [f"{column.title:8} {cell}" for column, cell in columns if cell and cell != name]
    return Item(first, notes=notes, depth=1)


def _cells(slots: Sequence[SlotReport]) -> tuple[str, ...]:
    """Return the texts of one slot, or of all that an array was split into."""
    slot = slots[0]
    taps = " ".join(map(at_tap, slot.taps))
    if slot.kind == "mit_mot":
        taps = f"{taps} → {' '.join(map(at_tap, slot.out_taps))}"
    has_result = bool(slot.out_taps)
    found = dict.fromkeys(reader for one in slots for reader in one.read_by)
    readers = ", ".join(found) or ("nothing" if has_result else "")
    rows = slot.rows or ""
    if not slot.whole:
        rows += " (trimmed)" if slot.trimmed else " (length unknown)"
    size = "" if slot.bytes is None else size_text(slot.bytes)
    if size and len(slots) > 1:
        size += " an entry"
    name = _name(slots)
    inside = name if all(one.inside == one.name for one in slots) else _first(slots, "inside")
    return (
        slot.kind,
        name,
        taps,
        slot.dtype,
        _shape(slots),
        rows,
        size,
        _source(slots),
        inside,
        readers,
    )


def _source(slots: Sequence[SlotReport]) -> str:
    """Return what feeds a slot, or what array all entries of one come from."""
    arrays = {slot.fed_by.rpartition("[")[0] for slot in slots}
    is_one = len(slots) > 1 and len(arrays) == 1 and all(slot.fed_by[-1:] == "]" for slot in slots)
    return cut(arrays.pop(), LONGEST) if is_one else _first(slots, "fed_by")


def _first(slots: Sequence[SlotReport], field: str) -> str:
    texts = dict.fromkeys(str(getattr(slot, field)) for slot in slots)
    return cut(next(iter(texts)), LONGEST) + (", …" if len(texts) > 1 else "")


def _name(slots: Sequence[SlotReport]) -> str:
    """Return the name of a slot; of those of an array, ``P[0..1, 0..2]``."""
    entry = slots[0].entry
    if entry is None or len(slots) == 1:
        return slots[0].name
    axes = _axes(slots)
    spans = (str(low) if low == high else f"{low}..{high}" for low, high in axes)
    count = prod(high - low + 1 for low, high in axes)
    some = "" if count == len(slots) else f" ({len(slots)} of {count})"
    return f"{entry.array}[{', '.join(spans)}]{some}"


def _shape(slots: Sequence[SlotReport]) -> str:
    """Return the shape of a row of a slot, or of the array that was split into slots."""
    if len(slots) == 1:
        lengths: Sequence[str] = slots[0].shape
    else:
        lengths = [str(high - low + 1) for low, high in _axes(slots)]
    return f"({', '.join(lengths)})" if lengths else ""


def _axes(slots: Sequence[SlotReport]) -> list[tuple[int, int]]:
    """Return the first and the last place of the entries, along each axis."""
    places = [slot.entry.place for slot in slots if slot.entry is not None]
    return [(min(axis), max(axis)) for axis in zip(*places, strict=True)]
