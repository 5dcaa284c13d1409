"""The messages between a student's process and the grader's: arrays and plain data, never pickled objects.

A message is JSON text and a set of numeric arrays. Any other object stays in the student's process and is represented
by a handle. The reader trusts nothing: sizes are checked before anything is allocated.
"""

from __future__ import annotations

import base64
import io
import json
import math
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import numpy as np

MAX_TEXT_BYTES = 8 << 20
MAX_ARRAY_BYTES = 512 << 20
MAX_DEPTH = 30
NUMERIC_KINDS = "biufc"


class CodecError(Exception):
    """A message is malformed or too large, or a value cannot be encoded."""


@dataclass(frozen=True)
class Tensor:
    """An array that the student's process receives as a `torch.Tensor`."""

    array: np.ndarray


@dataclass(frozen=True)
class Onnx:
    """The bytes of a model that the student's process receives as an `onnx.ModelProto`."""

    data: bytes


@dataclass(frozen=True)
class Hir:
    """A serialized compiler graph: its text, and the arrays that the text names by hash.

    The student's process receives it as a `Graph`; what comes from there stays text until a limited process parses it.
    """

    text: str
    constants: dict[str, np.ndarray]


@dataclass(frozen=True)
class Remote:
    """An object in the student's process: its handle, the name of its type and a short text."""

    handle: int
    type: str
    text: str


@dataclass
class Message:
    """JSON text, and the arrays that it refers to by name."""

    text: str
    arrays: dict[str, np.ndarray]

    def to_bytes(self) -> tuple[bytes, bytes]:
        """Return the JSON text and the arrays as an uncompressed npz."""
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **self.arrays)  # pyright: ignore[reportArgumentType]
        return self.text.encode(), buffer.getvalue()

    @classmethod
    def from_bytes(cls, text: bytes, arrays: bytes) -> Message:
        """Return the message that `to_bytes` wrote.

        Raises:
            CodecError: The message is too large or malformed.
        """
        if len(text) > MAX_TEXT_BYTES:
            raise CodecError(f"{len(text)} bytes of plain data; the limit is {MAX_TEXT_BYTES}")
        return cls(text.decode(errors="replace"), _read_arrays(arrays))


def _read_arrays(data: bytes) -> dict[str, np.ndarray]:
    """Return the numeric arrays of an npz; a header that claims more data than there is fails before allocation."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
            if sum(entry.file_size for entry in entries) > MAX_ARRAY_BYTES:
                raise CodecError(f"the arrays exceed the limit of {MAX_ARRAY_BYTES >> 20} MiB")
            return {entry.filename.removesuffix(".npy"): _read_array(archive.read(entry)) for entry in entries}
    except CodecError:
        raise
    except Exception as error:  # zipfile, zlib and NumPy raise more kinds on damaged bytes than they document
        raise CodecError(f"the arrays cannot be read: {type(error).__name__}: {error}") from None


def _read_array(data: bytes) -> np.ndarray:
    stream = io.BytesIO(data)
    if np.lib.format.read_magic(stream) != (1, 0):
        raise CodecError("unsupported array format")
    shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
    if dtype.kind not in NUMERIC_KINDS:
        raise CodecError(f"arrays of type {dtype} are not supported: only numeric arrays are")
    if math.prod(shape) * dtype.itemsize != len(data) - stream.tell():
        raise CodecError("the header of an array does not match its size")
    return np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)


def encode(value: object, register: Callable[[object], int] | None = None) -> Message:
    """Encode a value as a message.

    Args:
        value: None, bool, int, float, str, bytes, list, tuple, set, dict, arrays, tensors, data frames, ONNX models,
            and any nesting of them.
        register: Stores any other object and returns its handle; without it such an object is an error.

    Raises:
        CodecError: The value cannot be encoded.
    """
    arrays: dict[str, np.ndarray] = {}
    tree = _Encoder(arrays, register).encode(value, 0)
    return Message(json.dumps(tree), arrays)


class _Encoder:
    def __init__(self, arrays: dict[str, np.ndarray], register: Callable[[object], int] | None) -> None:
        self.arrays = arrays
        self.register = register

    def encode(self, value: Any, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise CodecError(f"data are nested more than {MAX_DEPTH} levels deep")
        if value is None or type(value) in (bool, int, float, str):
            return value
        for kind, encoder in ENCODERS:
            if kind(value):
                return encoder(self, value, depth + 1)
        if self.register is None:
            raise CodecError(f"{type(value).__name__} is not supported: only arrays and plain data are")
        return {"$object": [self.register(value), type(value).__name__, _short_text(value)]}

    def store(self, array: np.ndarray) -> str:
        if array.dtype.kind not in NUMERIC_KINDS:
            raise CodecError(f"arrays of type {array.dtype} are not supported: only numeric arrays are")
        name = f"a{len(self.arrays)}"
        self.arrays[name] = np.ascontiguousarray(array).reshape(array.shape)
        return name

    def encode_all(self, values: Any, depth: int) -> list:
        return [self.encode(value, depth) for value in values]


def _short_text(value: object) -> str:
    try:
        return repr(value)[:200]
    except Exception as error:
        return f"<its repr fails: {type(error).__name__}>"


def _is(module: str, name: str) -> Callable[[object], bool]:
    """Return a test for instances of `module.name`, which does not import the module: if nobody did, there are none."""

    def test(value: object) -> bool:
        kind = getattr(sys.modules.get(module), name, None)
        return isinstance(kind, type) and isinstance(value, kind)

    return test


def _is_jax_array(value: Any) -> bool:
    """Whether it is a JAX array that NumPy can hold; PRNG keys have a dtype of their own."""
    return _is("jax", "Array")(value) and isinstance(value.dtype, np.dtype)


def _instance(*kinds: type) -> Callable[[object], bool]:
    return lambda value: isinstance(value, kinds)


def _encode_graph(encoder: _Encoder, graph: Any, depth: int) -> Any:
    from mlhood.compiler.hir.text import to_text
    from mlhood.compiler.parse import constants_by_digest

    return _encode_hir(encoder, Hir(to_text(graph), constants_by_digest(graph)), depth)


def _encode_hir(encoder: _Encoder, hir: Hir, depth: int) -> Any:
    return {"$graph": [hir.text, encoder.encode(hir.constants, depth)]}


ENCODERS: tuple[tuple[Callable[[object], bool], Callable[[_Encoder, Any, int], Any]], ...] = (
    (_instance(bool, np.bool_), lambda e, v, d: bool(v)),
    (_instance(int, np.integer), lambda e, v, d: int(v)),
    (_instance(float, np.floating), lambda e, v, d: float(v)),
    (_instance(str, PurePath), lambda e, v, d: str(v)),
    (_instance(bytes, bytearray), lambda e, v, d: {"$bytes": base64.b64encode(v).decode()}),
    (_instance(Tensor), lambda e, v, d: {"$tensor": e.store(v.array)}),
    (_instance(Onnx), lambda e, v, d: {"$onnx": base64.b64encode(v.data).decode()}),
    (_instance(Hir), _encode_hir),
    (_is("mlhood.compiler.hir.graph", "Graph"), _encode_graph),
    (_is("mlhood.compiler.hir.types", "TensorType"), lambda e, v, d: {"$type": e.encode_all([v.element, *v.shape], d)}),
    (_instance(Remote), lambda e, v, d: {"$remote": v.handle}),
    (_instance(np.ndarray), lambda e, v, d: {"$array": e.store(np.asarray(v))}),
    (_is("torch", "Tensor"), lambda e, v, d: {"$array": e.store(v.detach().cpu().numpy())}),
    (_is_jax_array, lambda e, v, d: {"$array": e.store(np.asarray(v))}),
    (_is("torch", "Size"), lambda e, v, d: {"$tuple": [int(n) for n in v]}),
    (_is("torch", "dtype"), lambda e, v, d: str(v)),
    (_is("pandas", "DataFrame"), lambda e, v, d: {"$frame": e.encode({str(n): v[n].tolist() for n in v.columns}, d)}),
    (_is("pandas", "Series"), lambda e, v, d: e.encode(v.to_dict(), d)),
    (_is("pandas", "Index"), lambda e, v, d: e.encode(v.tolist(), d)),
    (_is("onnx", "ModelProto"), lambda e, v, d: {"$bytes": base64.b64encode(v.SerializeToString()).decode()}),
    (_instance(list), lambda e, v, d: e.encode_all(v, d)),
    (_instance(tuple), lambda e, v, d: {"$tuple": e.encode_all(v, d)}),
    (_instance(set, frozenset), lambda e, v, d: {"$set": e.encode_all(v, d)}),
    (_instance(dict), lambda e, v, d: {"$dict": [e.encode_all(item, d) for item in v.items()]}),
)


def decode(message: Message, resolve: Callable[[int], object] | None = None) -> Any:
    """Decode a message to a value.

    Args:
        message: The result of `encode`, or anything that a hostile process sends in its place.
        resolve: Returns the object of a handle, in the student's process. Without it objects are decoded as `Remote`
            and tensors as arrays.

    Raises:
        CodecError: The message is malformed.
    """
    try:
        tree = json.loads(message.text)
        return _decode(tree, message.arrays, resolve, 0)
    except CodecError:
        raise
    except Exception as error:  # data that a hostile process made up may fail in any way
        raise CodecError(f"a malformed message: {type(error).__name__}: {error}") from None


def _decode(tree: Any, arrays: dict[str, np.ndarray], resolve: Callable[[int], object] | None, depth: int) -> Any:
    if depth > 2 * MAX_DEPTH:
        raise CodecError(f"data are nested more than {MAX_DEPTH} levels deep")
    if isinstance(tree, str):
        return tree.encode("utf-8", "replace").decode()  # lone surrogates cannot be printed
    if tree is None or isinstance(tree, (bool, int, float)):
        return tree
    if isinstance(tree, list):
        return [_decode(item, arrays, resolve, depth + 1) for item in tree]
    ((kind, body),) = tree.items()
    if kind in ("$array", "$tensor"):
        return _as_tensor(arrays[body]) if kind == "$tensor" and resolve else arrays[body]
    if kind == "$bytes":
        return base64.b64decode(body, validate=True)
    if kind == "$onnx" and resolve:
        return _as_model(base64.b64decode(body, validate=True))
    if kind == "$remote" and resolve:
        return resolve(int(body))
    if kind == "$object":
        handle, type_name, text = body
        return Remote(int(handle), str(type_name)[:100], str(text)[:200])
    children = _decode(body, arrays, resolve, depth + 1)
    if kind == "$graph":
        hir = Hir(str(children[0]), dict(children[1]))
        return _as_graph(hir) if resolve else hir
    return DECODERS[kind](children)


def _as_tensor(array: np.ndarray) -> Any:
    import torch

    return torch.from_numpy(array.copy())


def _as_model(data: bytes) -> Any:
    import onnx

    return onnx.load_model_from_string(data)


def _as_graph(hir: Hir) -> Any:
    from mlhood.compiler.parse import parse

    return parse(hir.text, hir.constants)


def _tensor_type(parts: list) -> Any:
    from mlhood.compiler.hir.types import TensorType

    element, *shape = parts
    return TensorType(element, tuple(shape))


def _frame(columns: dict) -> Any:
    import pandas

    return pandas.DataFrame(columns)


DECODERS: dict[str, Callable[[Any], Any]] = {
    "$tuple": tuple,
    "$set": frozenset,
    "$dict": lambda pairs: {key: value for key, value in pairs},  # noqa: C416 - a pair of wrong length must fail
    "$frame": _frame,
    "$type": _tensor_type,
}
