"""What may cross between a student's process and ours: arrays and plain data, never pickled objects.

A message is JSON text and a set of numeric arrays. Whatever is neither stays where it is, and only a handle to it
crosses. The reading side trusts nothing: sizes are capped before anything is loaded.
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


class WireError(Exception):
    """A message that is malformed, too large, or of a kind that may not cross."""


@dataclass(frozen=True)
class Tensor:
    """An array that shall arrive in the student's process as a `torch.Tensor`."""

    array: np.ndarray


@dataclass(frozen=True)
class Onnx:
    """The bytes of a model that shall arrive in the student's process as an `onnx.ModelProto`."""

    data: bytes


@dataclass(frozen=True)
class Hir:
    """A compiler graph as it crosses: its text, and the arrays that the text names by hash.

    In the student's process it arrives as a `Graph`; from there it comes as text that nobody has read yet.
    """

    text: str
    constants: dict[str, np.ndarray]


@dataclass(frozen=True)
class Remote:
    """An object that stays in the student's process: its number there, its type's name and a short text."""

    number: int
    type: str
    text: str


@dataclass
class Message:
    """Plain data as JSON text, and the arrays that it refers to by name."""

    text: str
    arrays: dict[str, np.ndarray]

    def to_bytes(self) -> tuple[bytes, bytes]:
        """The JSON text and the arrays as an uncompressed npz."""
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **self.arrays)  # pyright: ignore[reportArgumentType]
        return self.text.encode(), buffer.getvalue()

    @classmethod
    def from_bytes(cls, text: bytes, arrays: bytes) -> Message:
        """Read what `to_bytes` wrote.

        Raises:
            WireError: The message is too large or malformed.
        """
        if len(text) > MAX_TEXT_BYTES:
            raise WireError(f"{len(text)} bytes of plain data; at most {MAX_TEXT_BYTES} may cross")
        return cls(text.decode(errors="replace"), _read_arrays(arrays))


def _read_arrays(data: bytes) -> dict[str, np.ndarray]:
    """Numeric arrays of an npz. A header that claims more than its bytes hold is refused before allocation."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
            if sum(entry.file_size for entry in entries) > MAX_ARRAY_BYTES:
                raise WireError(f"arrays of more than {MAX_ARRAY_BYTES >> 20} MiB may not cross")
            return {entry.filename.removesuffix(".npy"): _read_array(archive.read(entry)) for entry in entries}
    except WireError:
        raise
    except Exception as error:  # zipfile, zlib and NumPy raise more kinds on damaged bytes than they document
        raise WireError(f"the arrays cannot be read: {type(error).__name__}: {error}") from None


def _read_array(data: bytes) -> np.ndarray:
    stream = io.BytesIO(data)
    if np.lib.format.read_magic(stream) != (1, 0):
        raise WireError("an array in an unknown format")
    shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
    if dtype.kind not in NUMERIC_KINDS:
        raise WireError(f"an array of type {dtype} may not cross; only numbers may")
    if math.prod(shape) * dtype.itemsize != len(data) - stream.tell():
        raise WireError("an array whose header does not fit its bytes")
    return np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)


def encode(value: object, keep: Callable[[object], int] | None = None) -> Message:
    """Turn a value into a message.

    Args:
        value: None, bool, int, float, str, bytes, list, tuple, set, dict, arrays, tensors, data frames, ONNX models,
            and any nesting of them.
        keep: Stores an object that may not cross and returns its number; without it such an object is an error.
    """
    arrays: dict[str, np.ndarray] = {}
    tree = _Encoder(arrays, keep).encode(value, 0)
    return Message(json.dumps(tree), arrays)


class _Encoder:
    def __init__(self, arrays: dict[str, np.ndarray], keep: Callable[[object], int] | None) -> None:
        self.arrays = arrays
        self.keep = keep

    def encode(self, value: Any, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise WireError(f"data nested more than {MAX_DEPTH} deep may not cross")
        if value is None or type(value) in (bool, int, float, str):
            return value
        for kind, encoder in ENCODERS:
            if kind(value):
                return encoder(self, value, depth + 1)
        if self.keep is None:
            raise WireError(f"a {type(value).__name__} may not cross; only arrays and plain data may")
        return {"$object": [self.keep(value), type(value).__name__, _short_text(value)]}

    def store(self, array: np.ndarray) -> str:
        if array.dtype.kind not in NUMERIC_KINDS:
            raise WireError(f"an array of type {array.dtype} may not cross; only numbers may")
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
    """Whether a value is an instance of `module.name`, without importing the module: unless it is, no value can be."""

    def test(value: object) -> bool:
        kind = getattr(sys.modules.get(module), name, None)
        return isinstance(kind, type) and isinstance(value, kind)

    return test


def _is_jax_array(value: Any) -> bool:
    """Whether it is an array of JAX that NumPy can hold: keys of random numbers are of a type of their own."""
    return _is("jax", "Array")(value) and isinstance(value.dtype, np.dtype)


def _instance(*kinds: type) -> Callable[[object], bool]:
    return lambda value: isinstance(value, kinds)


def _encode_frame(encoder: _Encoder, frame: Any, depth: int) -> Any:
    columns = {str(name): frame[name].tolist() for name in frame.columns}
    return {"$frame": encoder.encode(columns, depth)}


def _encode_graph(encoder: _Encoder, graph: Any, depth: int) -> Any:
    from mlhood.compiler.hir.text import to_text
    from mlhood.compiler.parse import constants_by_digest

    return _encode_hir(encoder, Hir(to_text(graph), constants_by_digest(graph)), depth)


def _encode_hir(encoder: _Encoder, hir: Hir, depth: int) -> Any:
    return {"$graph": [hir.text, encoder.encode(hir.constants, depth)]}


def _encode_type(encoder: _Encoder, type: Any, depth: int) -> Any:
    return {"$type": encoder.encode_all([type.element, *type.shape], depth)}


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
    (_is("mlhood.compiler.hir.types", "TensorType"), _encode_type),
    (_instance(Remote), lambda e, v, d: {"$remote": v.number}),
    (_instance(np.ndarray), lambda e, v, d: {"$array": e.store(np.asarray(v))}),
    (_is("torch", "Tensor"), lambda e, v, d: {"$array": e.store(v.detach().cpu().numpy())}),
    (_is_jax_array, lambda e, v, d: {"$array": e.store(np.asarray(v))}),
    (_is("torch", "Size"), lambda e, v, d: {"$tuple": [int(n) for n in v]}),
    (_is("torch", "dtype"), lambda e, v, d: str(v)),
    (_is("pandas", "DataFrame"), _encode_frame),
    (_is("pandas", "Series"), lambda e, v, d: e.encode(v.to_dict(), d)),
    (_is("pandas", "Index"), lambda e, v, d: e.encode(v.tolist(), d)),
    (_is("onnx", "ModelProto"), lambda e, v, d: {"$bytes": base64.b64encode(v.SerializeToString()).decode()}),
    (_instance(list), lambda e, v, d: e.encode_all(v, d)),
    (_instance(tuple), lambda e, v, d: {"$tuple": e.encode_all(v, d)}),
    (_instance(set, frozenset), lambda e, v, d: {"$set": e.encode_all(v, d)}),
    (_instance(dict), lambda e, v, d: {"$dict": [e.encode_all(item, d) for item in v.items()]}),
)


def decode(message: Message, find: Callable[[int], object] | None = None) -> Any:
    """Turn a message back into a value.

    Args:
        message: What `encode` made, or what a hostile process claims to be such.
        find: The object of a number, on the student's side. Without it objects come back as `Remote`, and tensors
            as arrays.

    Raises:
        WireError: The message is malformed.
    """
    try:
        tree = json.loads(message.text)
        return _decode(tree, message.arrays, find, 0)
    except WireError:
        raise
    except Exception as error:  # what a hostile process has made up may fail in any way
        raise WireError(f"a malformed message: {type(error).__name__}: {error}") from None


def _decode(tree: Any, arrays: dict[str, np.ndarray], find: Callable[[int], object] | None, depth: int) -> Any:
    if depth > 2 * MAX_DEPTH:
        raise WireError(f"data nested more than {MAX_DEPTH} deep may not cross")
    if isinstance(tree, str):
        return tree.encode("utf-8", "replace").decode()  # no half characters, which nothing could print
    if tree is None or isinstance(tree, (bool, int, float)):
        return tree
    if isinstance(tree, list):
        return [_decode(item, arrays, find, depth + 1) for item in tree]
    ((kind, body),) = tree.items()
    if kind in ("$array", "$tensor"):
        return _as_tensor(arrays[body]) if kind == "$tensor" and find else arrays[body]
    if kind == "$bytes":
        return base64.b64decode(body, validate=True)
    if kind == "$onnx" and find:
        return _as_model(base64.b64decode(body, validate=True))
    if kind == "$remote" and find:
        return find(int(body))
    if kind == "$object":
        number, type_name, text = body
        return Remote(int(number), str(type_name)[:100], str(text)[:200])
    children = _decode(body, arrays, find, depth + 1)
    if kind == "$graph":
        hir = Hir(str(children[0]), dict(children[1]))
        return _as_graph(hir) if find else hir
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
