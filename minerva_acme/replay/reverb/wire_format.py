"""What Reverb says about its tables, in its own wire format.

Reverb describes tables in protocol buffers whose generated modules import TensorFlow. The few
messages needed here are flat, so they are written and read by hand: a message is a series of fields,
each a key (field number, wire type) and a value.
"""

import pathlib
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from minerva_acme.replay import base
from minerva_acme.replay.messages import DTYPES, TableDescription, check_dtype, field_specs

# TensorFlow's numbers of the dtypes that Reverb can store.
_DTYPE_NUMBERS = dict(zip(DTYPES, (1, 2, 3, 4, 5, 6, 9, 10, 17, 19, 22, 23), strict=True))
_DTYPES = {number: dtype for dtype, number in _DTYPE_NUMBERS.items()}

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def encode_signature(signature: base.ItemSignature) -> bytes:
    """Returns a table's signature as a `tensorflow.StructuredValue`, a dict of tensor specs."""
    entries = b""
    for name, spec in field_specs(signature).items():
        check_dtype(name, spec.dtype)
        dimensions = b"".join(_field(2, _field(1, size)) for size in spec.shape)
        tensor_spec = _field(2, dimensions) + _field(3, _DTYPE_NUMBERS[spec.dtype])
        entries += _field(1, _field(1, name.encode()) + _field(2, _field(33, tensor_spec)))
    return _field(53, entries)


def decode_signature(message: bytes) -> dict[str, base.ColumnSpec]:
    """Reads the shape and dtype of each field of an item from a `tensorflow.StructuredValue`."""
    specs = {}
    for entry in _read(_last(_read(message), 53, b"")).get(1, []):
        pair = _read(entry)
        tensor_spec = _read(_last(_read(_last(pair, 2, b"")), 33, b""))
        dimensions = _read(_last(tensor_spec, 2, b"")).get(2, [])
        shape = tuple(_signed(_last(_read(dimension), 1, 0)) for dimension in dimensions)
        dtype = _DTYPES[_last(tensor_spec, 3, 0)]
        specs[_last(pair, 1, b"").decode()] = base.ColumnSpec(shape, dtype)
    return dict(sorted(specs.items()))


def decode_table_info(message: bytes) -> TableDescription:
    """Reads a `deepmind.reverb.TableInfo`."""
    fields = _read(message)
    limiter = _read(_last(fields, 5, b""))
    return TableDescription(
        name=_last(fields, 8, b"").decode(),
        max_size=_last(fields, 3, 0),
        max_times_sampled=_last(fields, 4, 0),
        sampler=_decode_selector(_last(fields, 1, b"")),
        remover=_decode_selector(_last(fields, 2, b"")),
        samples_per_insert=_double(_last(limiter, 1, 0)),
        min_diff=_double(_last(limiter, 2, 0)),
        max_diff=_double(_last(limiter, 3, 0)),
        min_size=_last(limiter, 4, 0),
        fields=decode_signature(_last(fields, 6, b"")),
        size=_last(fields, 7, 0),
        inserted=_last(_read(_last(limiter, 5, b"")), 2, 0),
        sampled=_last(_read(_last(limiter, 6, b"")), 2, 0),
    )


def read_checkpoint(path: pathlib.Path) -> list[TableDescription]:
    """Reads what tables a checkpoint holds; `path` is the folder that `checkpoint` returned."""
    records = zlib.decompress((path / "tables.tfrecord").read_bytes())
    tables = []
    while records:
        (length,) = struct.unpack_from("<Q", records)
        tables.append(_decode_table_checkpoint(records[12 : 12 + length]))
        records = records[12 + length + 4 :]
    return tables


def _decode_table_checkpoint(message: bytes) -> TableDescription:
    """Reads a `deepmind.reverb.PriorityTableCheckpoint`."""
    fields = _read(message)
    limiter = _read(_last(fields, 3, b""))
    inserted, deleted = _last(limiter, 7, 0), _last(limiter, 8, 0)
    return TableDescription(
        name=_last(fields, 1, b"").decode(),
        max_size=_last(fields, 6, 0),
        max_times_sampled=_last(fields, 7, 0),
        sampler=_decode_selector(_last(fields, 4, b"")),
        remover=_decode_selector(_last(fields, 5, b"")),
        samples_per_insert=_double(_last(limiter, 2, 0)),
        min_diff=_double(_last(limiter, 3, 0)),
        max_diff=_double(_last(limiter, 4, 0)),
        min_size=_last(limiter, 5, 0),
        fields=decode_signature(_last(fields, 9, b"")),
        size=inserted - deleted,
        inserted=inserted,
        sampled=_last(limiter, 6, 0),
    )


def _decode_selector(message: bytes) -> str:
    """Reads a `deepmind.reverb.KeyDistributionOptions`."""
    fields = _read(message)
    for number, name in {1: "Fifo", 2: "Uniform", 6: "Lifo"}.items():
        if _last(fields, number, 0):
            return name
    if 3 in fields:
        exponent = _double(_last(_read(_last(fields, 3, b"")), 1, 0))
        return f"Prioritized(exponent={exponent})"
    return "other"


def _field(number: int, value: int | bytes) -> bytes:
    """Writes one field."""
    if isinstance(value, int):
        return _varint(number << 3 | _VARINT) + _varint(value)
    return _varint(number << 3 | _BYTES) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first; the eighth says that more follow."""
    value %= 1 << 64  # a negative number is written as its two's complement
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def _read(message: bytes) -> dict[int, list[Any]]:
    """Reads a message's fields: ints, bytes, and doubles as their eight bytes' integer."""
    fields: dict[int, list[Any]] = {}
    for number, value in _read_fields(message):
        fields.setdefault(number, []).append(value)
    return fields


def _read_fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    position = 0

    def varint() -> int:
        nonlocal position
        value = shift = 0
        while True:
            byte = message[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    while position < len(message):
        key = varint()
        number, wire_type = key >> 3, key & 7
        if wire_type == _VARINT:
            yield number, varint()
            continue
        length = {_FIXED64: 8, _FIXED32: 4}.get(wire_type) or varint()
        value = message[position : position + length]
        position += length
        yield number, value if wire_type == _BYTES else int.from_bytes(value, "little")


def _last(fields: Mapping[int, Sequence[Any]], number: int, default: Any) -> Any:
    """A field's value; a message leaves out what has the default."""
    return fields[number][-1] if number in fields else default


def _signed(bits: int) -> int:
    return bits - (1 << 64) if bits >= 1 << 63 else bits


def _double(bits: int) -> float:
    (value,) = struct.unpack("<d", bits.to_bytes(8, "little"))
    return float(value)
