from __future__ import annotations

import contextlib
import io
import json
import pickle
import zipfile

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from mlhood.compiler.hir import Graph, TensorType
from mlhood.compiler.hir.text import to_text
from mlhood.compiler.operators.matrix import FullyConnected
from mlhood.grading.rpc import codec
from mlhood.grading.rpc.codec import CodecError, Hir, Message, Remote, Tensor, decode, encode

plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
arrays = hnp.arrays(
    st.sampled_from([np.float32, np.float64, np.int64, np.uint8, np.bool_, np.complex64]),
    hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4),
)
values = st.recursive(
    plain | arrays,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text() | st.integers(), inner, max_size=4)
    ),
    max_leaves=12,
)


def same(a, b) -> bool:
    """Equality that looks into arrays and tells types apart."""
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if type(a) is not type(b):
        return False
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    return a == b


def through(value, **options):
    """A value after encoding it to bytes and decoding them."""
    return decode(Message.from_bytes(*encode(value).to_bytes()), **options)


@given(values)
@settings(max_examples=150, deadline=None)
def test_round_trip(value):
    assert same(through(value), value)


def test_numbers_of_numpy_become_plain():
    assert same(through([np.float32(0.5), np.int8(3), np.bool_(True)]), [0.5, 3, True])


def test_frames_and_tensors_are_encoded():
    torch = pytest.importorskip("torch")
    frame = pd.DataFrame({"op": ["Conv"], "n": [3]})
    assert through(frame).equals(frame)
    assert same(through(torch.ones(2, 3)), np.ones((2, 3), np.float32))
    there = through(Tensor(np.ones(3)), resolve=lambda handle: handle)
    assert isinstance(there, torch.Tensor)


def test_other_objects_are_represented_by_a_handle():
    objects = []

    def register(value):
        objects.append(value)
        return len(objects) - 1

    decoded = decode(encode({"model": object()}, register))
    assert isinstance(decoded["model"], Remote)
    assert decode(encode(decoded["model"]), objects.__getitem__) is objects[0]
    with pytest.raises(CodecError, match="object is not supported"):
        encode(object())


def test_repr_that_fails_does_no_harm():
    class Nasty:
        def __repr__(self):
            raise RuntimeError

    assert "RuntimeError" in decode(encode(Nasty(), lambda value: 0)).text


def test_subclasses_of_plain_types_become_plain():
    class Liar(int):
        def __eq__(self, other):
            return True

        __hash__ = int.__hash__

    assert through(Liar(3)) == 3
    assert through(Liar(3)) != 4


@pytest.mark.parametrize("array", [np.array([object()]), np.array(["a"]), np.zeros(2, "datetime64[s]")])
def test_arrays_of_anything_but_numbers_are_refused(array):
    with pytest.raises(CodecError, match="only numeric arrays are"):
        encode(array)


def test_endless_data_are_refused():
    endless: list = []
    endless.append(endless)
    with pytest.raises(CodecError, match="nested"):
        encode(endless)


def npz(**files: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name + ".npy", data)
    return buffer.getvalue()


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


class Bomb:
    def __reduce__(self):
        return (exec, ("raise SystemExit('the pickle ran')",))


def header(text: str) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


HOSTILE_ARRAYS = {
    "not a zip": b"hello",
    "empty": b"",
    "a pickle": pickle.dumps(Bomb()),
    "a pickled array": npz(a0=npy(np.array([Bomb()], dtype=object))),
    "strings": npz(a0=npy(np.array(["a"]))),
    "records": npz(a0=npy(np.zeros(2, [("x", "f4")]))),
    "not an array": npz(a0=b"hello"),
    "a header alone": npz(a0=npy(np.zeros(4))[:60]),
    "more rows than bytes": npz(a0=npy(np.zeros(4)).replace(b"(4,)", b"(9,)")),
    "negative rows": npz(a0=npy(np.zeros(4)).replace(b"(4,), }  ", b"(-2,-2), }")),
    "newer format": npz(a0=b"\x93NUMPY\x03\x00" + npy(np.zeros(4))[8:]),
    "header of code": npz(a0=header("__import__('os')\n")),
    "unfinished header": npz(a0=header("{'descr': (((\n")),
    "unfinished string": npz(a0=header("{'descr': '''\n")),
    "header of 60 kB": npz(a0=header("{'descr': " + "[" * 60000 + "\n")),
    "truncated zip": npz(a0=npy(np.zeros(4)))[:-30],
    "damaged data": bytes(byte ^ (60 < i < 200) for i, byte in enumerate(npz(a0=npy(np.arange(99.0))))),
}


@pytest.mark.parametrize("data", HOSTILE_ARRAYS.values(), ids=HOSTILE_ARRAYS.keys())
def test_hostile_arrays_are_refused(data):
    with pytest.raises(CodecError):
        Message.from_bytes(b"null", data)


def test_zip_bomb_is_refused_before_it_is_decompressed(monkeypatch):
    bomb = npz(a0=bytes(64 << 20))
    assert len(bomb) < 1 << 20
    monkeypatch.setattr(codec, "MAX_ARRAY_BYTES", 32 << 20)
    with pytest.raises(CodecError, match="MiB"):
        Message.from_bytes(b"null", bomb)


def test_zip_that_lies_about_its_size_is_refused():
    data = bytearray(npz(a0=npy(np.zeros(1 << 16))))
    directory = data.rfind(b"PK\x01\x02")
    data[directory + 24 : directory + 28] = (200).to_bytes(4, "little")
    with pytest.raises(CodecError):
        Message.from_bytes(b"null", bytes(data))


def test_encrypted_and_oddly_packed_members_are_refused():
    encrypted, lzma, bzip2, unknown = (8, 1), (10, 14), (10, 12), (10, 99)
    for offset, value in (encrypted, lzma, bzip2, unknown):
        data = bytearray(npz(a0=npy(np.random.default_rng(0).normal(size=99))))
        for magic, shift in ((b"PK\x03\x04", 0), (b"PK\x01\x02", 2)):
            i = data.rfind(magic) + offset + shift - 2
            data[i : i + 2] = value.to_bytes(2, "little")
        with pytest.raises(CodecError):
            Message.from_bytes(b"null", bytes(data))


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_damaged_bytes_give_arrays_or_a_codec_error(data):
    good = bytearray(npz(a0=npy(np.arange(12.0).reshape(3, 4)), a1=npy(np.arange(5))))
    for _ in range(data.draw(st.integers(1, 4))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    try:
        message = Message.from_bytes(b"null", bytes(good))
    except CodecError:
        return
    assert all(array.dtype.kind in codec.NUMERIC_KINDS for array in message.arrays.values())


def test_huge_text_is_refused(monkeypatch):
    monkeypatch.setattr(codec, "MAX_TEXT_BYTES", 1000)
    with pytest.raises(CodecError, match="bytes of plain data"):
        Message.from_bytes(b" " * 1001, npz())


DEEP = "[" * 100_000 + "]" * 100_000
HOSTILE_TEXTS = [
    "",
    "{",
    "[1,",
    '"\\ud800',
    "1" * 5000,
    DEEP,
    '{"a":' * 500 + "1" + "}" * 500,
    "{}",
    '{"$unknown": 1}',
    '{"$array": "a9"}',
    '{"$array": ["a0"]}',
    '{"$array": {}}',
    '{"$a": 1, "$b": 2}',
    '{"$bytes": "***"}',
    '{"$bytes": 3}',
    '{"$object": 3}',
    '{"$object": [1e999, "a", "b"]}',
    '{"$object": [1]}',
    '{"$dict": [[1, 2, 3]]}',
    '{"$dict": [[[1], 2]]}',
    '{"$dict": 1}',
    '{"$tuple": 1}',
    '{"$set": [[1]]}',
    '{"$frame": 1}',
    '{"$frame": {"$dict": [["a", [1]], ["b", [1, 2]]]}}',
    '{"$frame": {"$dict": [[[1], 2]]}}',
    '{"$remote": 0}',
    '{"$tensor": "a9"}',
]


@pytest.mark.parametrize("text", HOSTILE_TEXTS, ids=lambda text: text[:30] or "empty")
def test_hostile_texts_are_refused(text):
    with pytest.raises(CodecError):
        decode(Message(text, {"a0": np.zeros(2)}))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["$dict", "$frame", "$set", "$object", "$array", "$x"]), inner, max_size=2)
    ),
)


@given(json_values)
@settings(max_examples=300, deadline=None)
def test_any_json_gives_plain_data_or_a_codec_error(tree):
    with contextlib.suppress(CodecError):
        decode(Message(json.dumps(tree), {"a0": np.zeros(2)}))


def small_graph() -> Graph:
    graph = Graph("small")
    x = graph.placeholder("x", TensorType("float32", ("batch", 3)))
    w = graph.constant("w", np.arange(12, dtype=np.float32).reshape(4, 3))
    graph.output(graph.add(FullyConnected(("Relu",)), x, w, name="fc").outputs[0], "y")
    return graph


def test_a_graph_is_sent_as_text_and_received_as_a_graph():
    graph = small_graph()
    serialized = through(graph)
    assert isinstance(serialized, Hir)
    assert serialized.text == to_text(graph)
    received = through(serialized, resolve=lambda handle: None)
    assert isinstance(received, Graph)
    assert to_text(received) == to_text(graph)


def test_a_hostile_graph_is_only_text_until_it_is_parsed():
    assert through(Hir("graph of nothing", {})).text == "graph of nothing"
    with pytest.raises(CodecError, match="syntax error in the text of a graph"):
        through(Hir("graph of nothing", {}), resolve=lambda handle: None)


def test_a_tensor_type_is_encoded():
    assert through(TensorType("int8", ("n", 3, 5))) == TensorType("int8", ("n", 3, 5))
