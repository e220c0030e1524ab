"""Descriptions of tables in Reverb's wire format.

Reverb describes tables in protocol buffers whose generated modules import TensorFlow. The few
messages needed here are flat, so they are written and read by hand: a message is a series of fields,
each with a key (field number, wire type) and a value.
"""

import json
import pathlib
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from minerva_acme.machine import reading
from minerva_acme.replay import base
from minerva_acme.replay.messages import DTYPES, Limits, TableDescription, field_specs

# TensorFlow's numbers for the dtypes that Reverb can store.
_DTYPE_NUMBERS = dict(zip(DTYPES, (1, 2, 3, 4, 5, 6, 9, 10, 17, 19, 22, 23), strict=True))
_DTYPES = {number: dtype for dtype, number in _DTYPE_NUMBERS.items()}

_MAX_BYTES = 1 << 22  # the largest description of a checkpoint's tables

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def encode_signature(signature: base.ItemSignature, contents: Mapping[str, str] | None = None) -> bytes:
    """Returns a table's signature as a `tensorflow.StructuredValue`, a dict of tensor specs.

    The table's contents, if any, are stored as JSON in the name of one tensor spec: Reverb stores names but
    does not use them.
    """
    entries, title = b"", _field(1, json.dumps(dict(contents)).encode()) if contents else b""
    for name, spec in field_specs(signature).items():
        dimensions = b"".join(_field(2, _field(1, size)) for size in spec.shape)
        tensor_spec = title + _field(2, dimensions) + _field(3, _DTYPE_NUMBERS[spec.dtype])
        title = b""
        entries += _field(1, _field(1, name.encode()) + _field(2, _field(33, tensor_spec)))
    return _field(53, entries)


def decode_signature(message: bytes) -> dict[str, base.ColumnSpec]:
    """Reads the shape and dtype of each field of an item from a `tensorflow.StructuredValue`."""
    specs = {}
    for entry in _Message(message).message(53).all(1):
        pair = _Message(entry)
        tensor_spec = pair.message(2).message(33)
        sizes = [_Message(dimension).number(1) for dimension in tensor_spec.message(2).all(2)]
        shape = tuple(size - (1 << 64) if size >= 1 << 63 else size for size in sizes)  # signed
        specs[pair.text(1)] = base.ColumnSpec(shape, _DTYPES[tensor_spec.number(3)])
    return dict(sorted(specs.items()))


def decode_contents(message: bytes) -> dict[str, str]:
    """Reads a table's contents from its signature; {} if it has none."""
    specs = [_Message(entry).message(2).message(33) for entry in _Message(message).message(53).all(1)]
    names = (spec.text(1) for spec in specs)  # a server returns them in any order
    contents = next((name for name in names if name.startswith("{")), "{}")
    return {key: str(value) for key, value in reading.json_text(contents).items()}


def decode_table_info(message: bytes) -> TableDescription:
    """Reads a `deepmind.reverb.TableInfo`."""
    table = _Message(message)
    limiter = table.message(5)
    inserted, sampled = limiter.message(5).number(2), limiter.message(6).number(2)
    return _describe(table, (8, 3, 4, 1, 2, 6), limiter, 1, table.number(7), inserted, sampled)


def read_checkpoint(path: pathlib.Path) -> list[TableDescription]:
    """Reads the descriptions of a checkpoint's tables; `path` is the folder that `checkpoint` returned."""
    unpacker = zlib.decompressobj()
    with reading.open_file(path / "tables.tfrecord") as file:
        records = unpacker.decompress(file.read(), _MAX_BYTES)
    if not unpacker.eof:
        raise ValueError(f"the description of its tables is cut off, or longer than {_MAX_BYTES} bytes")
    tables, place = [], 0
    while place < len(records):
        (length,) = struct.unpack_from("<Q", records, place)
        tables.append(_decode_table_checkpoint(records[place + 12 : place + 12 + length]))
        place += 12 + length + 4
    return tables


def is_whole(path: pathlib.Path) -> bool:
    """Returns whether the compressed content of a checkpoint's file is complete. Reads the whole file."""
    unpacker = zlib.decompressobj()
    try:
        with reading.open_file(path) as file:
            while piece := unpacker.unconsumed_tail or file.read(1 << 20):
                unpacker.decompress(piece, _MAX_BYTES)
    except zlib.error:
        return False
    return unpacker.eof


def _decode_table_checkpoint(message: bytes) -> TableDescription:
    """Reads a `deepmind.reverb.PriorityTableCheckpoint`."""
    table = _Message(message)
    limiter = table.message(3)
    sampled, inserted, deleted = (limiter.number(field) for field in (6, 7, 8))
    return _describe(table, (1, 6, 7, 4, 5, 9), limiter, 2, inserted - deleted, inserted, sampled)


def _describe(
    table: "_Message",
    numbers: Sequence[int],
    limiter: "_Message",
    first_limit: int,
    size: int,
    inserted: int,
    sampled: int,
) -> TableDescription:
    """Describes a table. The two messages have the same fields with different numbers."""
    name, max_size, max_times_sampled, sampler, remover, signature = numbers
    samples_per_insert, min_diff, max_diff = (limiter.double(first_limit + i) for i in range(3))
    return TableDescription(
        name=table.text(name),
        max_size=table.number(max_size),
        max_times_sampled=table.number(max_times_sampled),
        sampler=_selector(table.message(sampler)),
        remover=_selector(table.message(remover)),
        limits=Limits(samples_per_insert, limiter.number(first_limit + 3), min_diff, max_diff),
        fields=decode_signature(table.encoded(signature)),
        size=size,
        inserted=inserted,
        sampled=sampled,
        contents=decode_contents(table.encoded(signature)),
    )


def _selector(options: "_Message") -> str:
    """Returns the name of the selector in a `deepmind.reverb.KeyDistributionOptions`."""
    for number, name in {1: "Fifo", 2: "Uniform", 6: "Lifo"}.items():
        if options.number(number):
            return name
    return f"Prioritized(exponent={options.message(3).double(1)})" if options.all(3) else "other"


def _field(number: int, value: int | bytes) -> bytes:
    """Writes one field."""
    if isinstance(value, int):
        return _varint(number << 3 | _VARINT) + _varint(value)
    return _varint(number << 3 | _BYTES) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    """Encodes an integer with seven bits per byte, lowest first; the eighth bit marks that more follow."""
    value %= 1 << 64  # a negative number is written as its two's complement
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


class _Message:
    """The fields of a message by number. A missing field has its default value."""

    def __init__(self, encoded: bytes) -> None:
        self._encoded = encoded
        self._position = 0
        self._fields: dict[int, list[Any]] = {}
        while self._position < len(encoded):
            key = self._read_varint()
            self._fields.setdefault(key >> 3, []).append(self._read_value(key & 7))

    def all(self, number: int) -> list[Any]:
        return self._fields.get(number, [])

    def number(self, number: int) -> int:
        return int(self._fields.get(number, [0])[-1])

    def double(self, number: int) -> float:
        return float(struct.unpack("<d", self.number(number).to_bytes(8, "little"))[0])

    def encoded(self, number: int) -> bytes:
        return bytes(self._fields.get(number, [b""])[-1])

    def text(self, number: int) -> str:
        return self.encoded(number).decode()

    def message(self, number: int) -> "_Message":
        return _Message(self.encoded(number))

    def _read_varint(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self._encoded[self._position]
            self._position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise ValueError("a number has more than ten bytes")

    def _read_value(self, wire_type: int) -> int | bytes:
        if wire_type == _VARINT:
            return self._read_varint()
        length = {_FIXED64: 8, _FIXED32: 4}.get(wire_type) or self._read_varint()
        start = self._position
        self._position += length
        value = self._encoded[start : self._position]
        return value if wire_type == _BYTES else int.from_bytes(value, "little")
