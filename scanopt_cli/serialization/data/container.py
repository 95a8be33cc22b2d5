"""A graph as a file of the format ``.scanopt``, and back: see docs/explain/format.md.

The file is a zip archive of ``graph.json``, a table of tables, and of ``arrays/0.npy`` and so on,
the arrays that are too long for it. Nothing in it is code, and nothing that it names is imported
or called: a class is named by an entry of a closed table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytensor.graph.op import Op
from pytensor.graph.type import Type

from scanopt_cli.errors import ConfusedGraphError, LoadError, NotDataError
from scanopt_cli.ir.graph import check_counts
from scanopt_cli.serialization.archives import members_of, packed
from scanopt_cli.serialization.data.decoding import Arrays
from scanopt_cli.serialization.data.part_reading import PartReader, reason
from scanopt_cli.serialization.data.part_writing import PartWriter
from scanopt_cli.serialization.data.text import parsed, written_out
from scanopt_cli.serialization.payload import FORMAT, MOST_VARIABLES, SCHEMA, name_from
from scanopt_cli.version import __version__

VERSION = 1
"""The version of the format. A later scanopt reads every version up to its own."""

TABLE = "graph.json"
_ARRAY = "arrays/{}.npy"
_MOST_ARRAYS = 100_000
_KEYS = (
    *("format", "version", "versions", "parts", "inputs", "constants", "nodes", "names"),
    *("outputs", "output_names", "notes", "recorded", "stacks", "traces", "written"),
)


def to_file(payload: Mapping[str, Any]) -> bytes:
    """Return the file of what `payload.encode` says of a graph, the same bytes each time.

    Raises
    ------
    NotDataError
        If something in it cannot be written as data; it names the Op.
    """
    writer = PartWriter()
    try:
        document = _document(payload, writer)
        text = written_out(document)
    except RecursionError:
        raise NotDataError("its inner graphs are nested too deeply") from None
    except ValueError as error:
        raise NotDataError(f"a value cannot be written as data: {error}") from None
    arrays = {_ARRAY.format(number): data for number, data in enumerate(writer.arrays)}
    return packed({TABLE: text, **arrays})


def _document(payload: Mapping[str, Any], writer: PartWriter) -> dict[str, Any]:
    types, ops = payload["types"], payload["ops"]
    kind_numbers = [writer.number(kind) for kind in types]
    op_numbers = [writer.number(op) for op in ops]
    values = payload["values"]
    inputs = []
    for position, (kind, name) in enumerate(payload["inputs"]):
        row = [kind_numbers[kind], name]
        inputs.append([*row, writer.contents(values[position])] if position in values else row)
    constants = []
    for kind, data, name in payload["constants"]:
        row = [kind_numbers[kind], writer.value(data, "a constant")]
        constants.append(row if name is None else [*row, name])
    rows, names, number = [], [], len(inputs) + len(constants)
    for op, sources, targets in payload["nodes"]:
        rows.append([op_numbers[op], list(sources), [kind_numbers[kind] for kind, _ in targets]])
        for _, name in targets:
            if name is not None:
                names.append([number, name])
            number += 1
    stacks: dict[Any, int] = {}
    traces = [
        [*place, stacks.setdefault(trace, len(stacks))]
        for place, trace in payload["traces"].items()
    ]
    recorded = [
        [writer.value(value, "a recorded value") for value in call] for call in payload["recorded"]
    ]
    return {
        "format": FORMAT,
        "version": VERSION,
        "versions": dict(payload["versions"]),
        "parts": writer.rows,
        "inputs": inputs,
        "constants": constants,
        "nodes": rows,
        "names": names,
        "outputs": list(payload["outputs"]),
        "output_names": list(payload["output_names"]),
        "notes": list(payload["notes"]),
        "recorded": recorded,
        "stacks": list(stacks),
        "traces": traces,
        "written": [
            [[op_numbers[row], *rest], *place] for (row, *rest), place in payload["written"]
        ],
    }


def document_of(data: bytes, where: str) -> tuple[dict[str, Any], list[bytes]]:
    """Return the table in a file, and the files of its arrays; nothing is made of them yet.

    Raises
    ------
    LoadError
        If the file is no archive of the format, or of a later version.
    """
    try:
        found = members_of(data, _MOST_ARRAYS, f"{_MOST_ARRAYS:,} arrays")
    except Exception as error:
        raise LoadError(
            f"is no file of the format .scanopt: {reason(error)}",
            where=where,
            hint="write it again",
        ) from None
    names = [TABLE, *(_ARRAY.format(number) for number in range(len(found) - 1))]
    if found.keys() != set(names):
        raise LoadError(
            f"is no file of the format .scanopt: it does not hold {TABLE} and arrays alone",
            where=where,
            hint="give a graph file",
        )
    try:
        document = parsed(found[TABLE])
        if type(document) is not dict or document.get("format") != FORMAT:
            raise ValueError("it is not the table of a graph")
    except Exception as error:
        raise LoadError(
            f"{TABLE} cannot be read: {reason(error)}", where=where, hint="write it again"
        ) from None
    version = document.get("version")
    if version != VERSION or type(version) is not int:
        number = version if type(version) is int and 0 <= version < 1000 else "of no number"
        raise LoadError(
            f"written in version {number} of the format .scanopt, this is scanopt {__version__}, "
            f"which reads version {VERSION}",
            where=where,
            hint="use the scanopt that wrote it, or write it again",
        )
    if document.keys() != set(_KEYS):
        raise LoadError(
            f"{TABLE} has other keys than those of a graph", where=where, hint="write it again"
        )
    return document, [found[name] for name in names[1:]]


def payload_of(data: bytes, where: str) -> dict[str, Any]:
    """Return what `payload.decode` makes a graph of.

    Raises
    ------
    LoadError
        If the file does not describe a graph; it says where.
    """
    document, files = document_of(data, where)
    arrays = Arrays(files)
    reader = PartReader(arrays, where)
    try:
        reader.read(document["parts"])
        payload = _payload(document, reader, arrays)
        arrays.check_all_used()
    except ConfusedGraphError:
        raise  # for which the file is not the reason
    except LoadError as error:
        raise LoadError(f"{TABLE}: {error.what}", where=where, hint="write it again") from None
    except Exception as error:
        raise LoadError(f"{TABLE}: {reason(error)}", where=where, hint="write it again") from None
    return payload


def _payload(document: Mapping[str, Any], reader: PartReader, arrays: Arrays) -> dict[str, Any]:
    table = _Rows(document, reader)
    check_counts(len(document["inputs"]), len(document["outputs"]))
    if len(document["constants"]) > MOST_VARIABLES:
        raise ValueError(f"it has more than {MOST_VARIABLES:,} constants")
    inputs = table.each("inputs", table.input)
    constants = table.each("constants", table.constant)
    table.count = len(inputs) + len(constants)
    table.names = dict(table.each("names", table.name))
    nodes = table.each("nodes", table.node)
    if table.names:
        raise ValueError(f"names: variable {min(table.names)} is not the output of a node")
    stacks = table.each("stacks", _tuples)
    arrays.stop_counting()
    return {
        "format": FORMAT,
        "schema": SCHEMA,
        "versions": _texts(document["versions"]),
        "inputs": [row[:2] for row in inputs],
        "constants": constants,
        "types": reader.parts,
        "ops": reader.parts,
        "nodes": nodes,
        "outputs": table.each("outputs", table.output),
        "output_names": table.each("output_names", name_from),
        "values": {place: row[2] for place, row in enumerate(inputs) if len(row) > 2},
        "recorded": table.each("recorded", lambda row: tuple(map(reader.decoder.value, row))),
        "notes": table.each("notes", name_from),
        "traces": {
            (node, place): stacks[_natural(stack)]
            for node, place, stack in table.each("traces", lambda row: row)
        },
        "written": table.each("written", table.written),
    }


class _Rows:
    """Reads the rows of the tables of a graph; an error names the row."""

    def __init__(self, document: Mapping[str, Any], reader: PartReader) -> None:
        self._document = document
        self._reader = reader
        self.count = 0
        self.names: dict[int, Any] = {}

    def each(self, table: str, read: Any) -> list[Any]:
        rows = self._document[table]
        if type(rows) is not list:
            raise ValueError(f"{table} is no list")
        made = []
        for number, row in enumerate(rows):
            try:
                made.append(read(row))
            except LoadError:
                raise
            except Exception as error:
                raise ValueError(f"{table}[{number}]: {reason(error)}") from None
        return made

    def input(self, row: Any) -> tuple[Any, ...]:
        kind, name, *contents = row
        self._reader.part(kind, Type)
        if len(contents) > 1:
            raise ValueError("it has more than a type, a name and contents")
        return kind, name_from(name), *map(self._reader.decoder.contents, contents)

    def constant(self, row: Any) -> tuple[Any, ...]:
        made = self._reader.constant(row)
        return row[0], made.data, made.name

    def name(self, row: Any) -> tuple[int, Any]:
        number, name = row
        return _natural(number), name_from(name)

    def node(self, row: Any) -> tuple[Any, ...]:
        op, sources, kinds = row
        self._reader.part(op, Op)
        for source in sources:
            if _natural(source) >= self.count:
                raise ValueError(f"variable {source} is not computed before it is read")
        targets = []
        for kind in kinds:
            self._reader.part(kind, Type)
            targets.append((kind, self.names.pop(self.count, None)))
            self.count += 1
        return op, sources, targets

    def output(self, number: Any) -> int:
        if _natural(number) >= self.count:
            raise ValueError(f"there is no variable {number}")
        return int(number)

    def written(self, row: Any) -> tuple[Any, ...]:
        path, file, line, function, arguments = row
        return _tuples(path), (file, line, function, _tuples(arguments))


def _texts(versions: Any) -> dict[str, str]:
    if type(versions) is not dict or any(type(version) is not str for version in versions.values()):
        raise ValueError("versions is no table of texts")
    return versions


def _natural(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{str(value)[:20]} is no number of a row")
    return value


def _tuples(form: Any) -> Any:
    return tuple(map(_tuples, form)) if type(form) is list else form
