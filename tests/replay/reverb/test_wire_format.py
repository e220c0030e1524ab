"""The wire format, against the bytes that TensorFlow makes."""

import os
import subprocess
import sys

import numpy as np
import pytest

from minerva_acme import replay
from minerva_acme.replay import messages
from minerva_acme.replay.reverb import log, wire_format

SIGNATURE = replay.ItemSignature(
    columns={
        "float32": replay.ColumnSpec((40,), np.dtype(np.float32)),
        "image": replay.ColumnSpec((4, 4, 3), np.dtype(np.uint8)),
        "count": replay.ColumnSpec((), np.dtype(np.int64)),
    },
    fields={
        "a": replay.FieldSpec("image", 1),
        "b": replay.FieldSpec("float32", 300),
        "c": replay.FieldSpec("count", 2),
    },
)

# nested_structure_coder.encode_structure({"a": tf.TensorSpec([1, 4, 4, 3], tf.uint8), "b":
# tf.TensorSpec([300, 40], tf.float32), "c": tf.TensorSpec([2], tf.int64)}).SerializeToString()
TENSORFLOWS_BYTES = bytes.fromhex(
    "aa03470a100a0163120b8a020812041202080218090a150a016212108a020d1209120308ac021202082818010a"
    "1c0a016112178a02141210120208011202080412020804120208031804"
)


def test_a_signature_that_tensorflow_wrote_is_read():
    assert wire_format.decode_signature(TENSORFLOWS_BYTES) == messages.field_specs(SIGNATURE)


# nested_structure_coder.encode_structure({"b": tf.TensorSpec([None, 40], tf.float32)})
VARIABLE_BYTES = bytes.fromhex("aa031f0a1d0a016212188a02151211120b08ffffffffffffffffff01120208281801")


def test_a_length_that_varies_is_written_and_read_as_tensorflow_does():
    column = {"float32": SIGNATURE.columns["float32"]}
    signature = replay.ItemSignature(column, {"b": replay.FieldSpec("float32", 300, variable=True)})
    assert wire_format.encode_signature(signature) == VARIABLE_BYTES
    assert wire_format.decode_signature(VARIABLE_BYTES) == {"b": ((-1, 40), np.dtype(np.float32))}


def test_a_signature_is_written_as_tensorflow_writes_it():
    encoded = wire_format.encode_signature(SIGNATURE)
    assert wire_format.decode_signature(encoded) == messages.field_specs(SIGNATURE)
    # But for the order of the fields, which TensorFlow leaves to chance.
    assert sorted(encoded) == sorted(TENSORFLOWS_BYTES)
    assert encoded[:3] == TENSORFLOWS_BYTES[:3]


def test_contents_are_written_and_read_beside_the_fields_whatever_their_order():
    contents = {"n_step": "3", "discount": "0.99"}
    encoded = wire_format.encode_signature(SIGNATURE, contents)
    assert wire_format.decode_contents(encoded) == contents
    assert wire_format.decode_signature(encoded) == messages.field_specs(SIGNATURE)
    entries = wire_format._Message(encoded).message(53).all(1)
    turned = wire_format._field(53, b"".join(wire_format._field(1, entry) for entry in reversed(entries)))
    assert turned != encoded and wire_format.decode_contents(turned) == contents


@pytest.mark.parametrize("encoded", [TENSORFLOWS_BYTES, b""])
def test_a_signature_without_contents_tells_none(encoded):
    assert wire_format.decode_contents(encoded) == {}


def test_the_name_of_a_field_that_another_library_wrote_is_no_contents():
    spec = wire_format._field(1, b"observation") + wire_format._field(3, 1)
    entry = wire_format._field(1, b"a") + wire_format._field(2, wire_format._field(33, spec))
    assert wire_format.decode_contents(wire_format._field(53, wire_format._field(1, entry))) == {}


def test_a_dtype_that_cannot_be_stored_is_refused():
    signature = replay.ItemSignature(
        {"column": replay.ColumnSpec((), np.dtype(np.complex64))}, {"field": replay.FieldSpec("column", 1)}
    )
    with pytest.raises(
        ValueError, match="`field` must have a dtype that can be stored .*float32.*, got complex64"
    ):
        wire_format.encode_signature(signature)


@pytest.mark.reverb
@pytest.mark.parametrize(
    "limiter",
    [
        replay.MinSize(7),
        replay.SampleToInsertRatio(4.0, 3, 100.0),
        replay.SampleToInsertRatio(4, 3, 100),
        replay.Queue(20),
    ],
)
@pytest.mark.parametrize(
    "selector",
    [replay.Uniform(), replay.Fifo(), replay.Lifo(), replay.Prioritized(0.6), replay.Prioritized(1)],
)
def test_a_table_is_read_as_it_was_described(serve, table, limiter, selector):
    config = table(
        rate_limiter=limiter,
        sampler=selector,
        remover=replay.Lifo(),
        max_times_sampled=3,
        signature=SIGNATURE,
    )
    client = serve(config).client()
    client.check_table(config)
    description = client._connection.table("replay")
    assert description.sampler == selector.describe()
    assert (description.remover, description.max_size, description.max_times_sampled) == ("Lifo", 1000, 3)
    assert description.fields == {
        "a": ((1, 4, 4, 3), np.uint8),
        "b": ((300, 40), np.float32),
        "c": ((2,), np.int64),
    }
    assert description.limits.min_size == getattr(limiter, "min_size", 1)


@pytest.mark.reverb
def test_reverbs_commentary_stays_off_the_terminal_and_comes_back():
    script = """
import ctypes, sys
from minerva_acme.replay.reverb import loader, log
loader.load()
library = ctypes.CDLL("libstdc++.so.6")
clog = ctypes.addressof(ctypes.c_char.in_dll(library, "_ZSt4clog"))
write = library["_ZStlsISt11char_traitsIcEERSt13basic_ostreamIcT_ES5_PKc"]
write.argtypes = (ctypes.c_void_p, ctypes.c_char_p)
library["_ZNSo5flushEv"].argtypes = (ctypes.c_void_p,)
write(clog, b"before ")
with log.quiet():
    with log.quiet():
        write(clog, b"inner ")
    write(clog, b"outer ")
    print("python", end=" ", file=sys.stderr, flush=True)
write(clog, b"after")
library["_ZNSo5flushEv"](clog)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=dict(os.environ)
    )
    assert done.stderr.split() == ["before", "python", "after"]
    assert log._num_quiet == 0
