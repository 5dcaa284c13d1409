"""The messages between a student's process and the grader's: arrays and plain data, never pickled objects.

A message is the length of a JSON text (`LENGTH`), the text, and the elements of numeric arrays, one array after the
other in the order in which the text names their types and shapes. Any other object stays in the student's process and
is represented by a handle. The reader trusts nothing, and reads in the grader's own process, since a notebook is asked
hundreds of times: the limits below hold for all of a message, and are checked before anything is allocated. Every
element is read once, so nothing is larger when it is decoded; a message at all limits takes 150 MiB while it is read.
The largest of the course's own solutions has 1 MiB.
"""

from __future__ import annotations

import json
import math
import re
import struct
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import PurePath
from typing import Any

import numpy as np

from mlhood.files.untrusted_json import has_at_most, loads

LENGTH = struct.Struct(">Q")
MAX_TEXT_BYTES = 8 << 20
MAX_VALUES = 200_000  # of the JSON, with names and what marks types
MAX_ARRAY_BYTES = 72 << 20  # of all arrays and bytes: a file that is fetched, and inputs for it
MAX_MESSAGE_BYTES = LENGTH.size + MAX_TEXT_BYTES + MAX_ARRAY_BYTES
MAX_DEPTH = 30
MAX_INTEGER_BITS = 1023  # so that it can be converted to a float
MAX_COLLISIONS = 16
"""Keys with the same hash. A dictionary compares each with all others, so that 100,000 take minutes."""
MAX_COLUMNS = 1000
MAX_AXIS, MAX_AXES = 1 << 31, 32
NUMERIC = re.compile(r"[<>|][biufc]\d{1,2}")  # `numpy.dtype.str` of numbers


class CodecError(Exception):
    """A message is malformed or too large, or a value cannot be encoded."""


@dataclass(frozen=True)
class TorchTensor:
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


def encode(value: object, register: Callable[[object], int] | None = None) -> bytes:
    """Encode a value as a message.

    Args:
        value: None, bool, int, float, fraction, decimal, str, bytes, list, tuple, set, dict, arrays, tensors, data
            frames, ONNX models, and any nesting of them.
        register: Stores any other object and returns its handle; without it such an object is an error.

    Raises:
        CodecError: The value cannot be encoded.
    """
    encoder = _Encoder(register)
    text = json.dumps(encoder.encode(value, 0)).encode()
    if len(text) > MAX_TEXT_BYTES:
        raise CodecError(f"{len(text)} bytes of plain data; the limit is {MAX_TEXT_BYTES}")
    if not has_at_most(text, MAX_VALUES):
        raise CodecError(f"more than {MAX_VALUES:,} values of plain data")
    return b"".join([LENGTH.pack(len(text)), text, *(array.data for array in encoder.arrays)])


class _Encoder:
    def __init__(self, register: Callable[[object], int] | None) -> None:
        self.arrays: list[np.ndarray] = []
        self.register = register
        self.remaining = MAX_ARRAY_BYTES

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

    def store(self, array: np.ndarray) -> list[str | int]:
        """Keep the elements of an array for the end of the message, and return its type and shape."""
        if not NUMERIC.fullmatch(array.dtype.str):
            raise CodecError(f"arrays of type {array.dtype} are not supported: only numeric arrays are")
        self.remaining -= array.nbytes
        if self.remaining < 0:
            raise CodecError(f"arrays and bytes exceed the limit of {MAX_ARRAY_BYTES >> 20} MiB")
        self.arrays.append(np.ascontiguousarray(array))
        return [array.dtype.str, *array.shape]

    def store_bytes(self, data: bytes | bytearray) -> list[str | int]:
        return self.store(np.frombuffer(data, np.uint8))

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
    """Whether it is a JAX array that NumPy can hold; PRNG keys have their own dtype."""
    return _is("jax", "Array")(value) and isinstance(value.dtype, np.dtype)


def _instance(*kinds: type) -> Callable[[object], bool]:
    return lambda value: isinstance(value, kinds)


def _encode_graph(encoder: _Encoder, graph: Any, depth: int) -> Any:
    from mlhood.compiler.hir.parse import constants_by_digest
    from mlhood.compiler.hir.text import to_text

    return _encode_hir(encoder, Hir(to_text(graph), constants_by_digest(graph)), depth)


def _encode_hir(encoder: _Encoder, hir: Hir, depth: int) -> Any:
    return {"$graph": [hir.text, encoder.encode(hir.constants, depth)]}


ENCODERS: tuple[tuple[Callable[[object], bool], Callable[[_Encoder, Any, int], Any]], ...] = (
    (_instance(bool, np.bool_), lambda e, v, d: bool(v)),
    (_instance(int, np.integer), lambda e, v, d: int(v)),
    (_instance(float, np.floating, Fraction, Decimal), lambda e, v, d: float(v)),
    (_instance(str, PurePath), lambda e, v, d: str(v)),
    (_instance(bytes, bytearray), lambda e, v, d: {"$bytes": e.store_bytes(v)}),
    (_instance(TorchTensor), lambda e, v, d: {"$tensor": e.store(v.array)}),
    (_instance(Onnx), lambda e, v, d: {"$onnx": e.store_bytes(v.data)}),
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
    (_is("onnx", "ModelProto"), lambda e, v, d: {"$bytes": e.store_bytes(v.SerializeToString())}),
    (_instance(list), lambda e, v, d: e.encode_all(v, d)),
    (_instance(tuple), lambda e, v, d: {"$tuple": e.encode_all(v, d)}),
    (_instance(set, frozenset), lambda e, v, d: {"$set": e.encode_all(v, d)}),
    (_instance(dict), lambda e, v, d: {"$dict": [e.encode_all(item, d) for item in v.items()]}),
)


def decode(message: bytes, resolve: Callable[[int], object] | None = None) -> Any:
    """Decode a message to a value.

    Args:
        message: The result of `encode`, or anything that a hostile process sends in its place.
        resolve: Returns the object of a handle, in the student's process. Without it objects are decoded as `Remote`
            and tensors as arrays.

    Raises:
        CodecError: The message is malformed or too large.
    """
    try:
        end = LENGTH.size + LENGTH.unpack_from(message)[0]
        if end > len(message):
            raise CodecError("the message is shorter than its text")
        tree = loads(message[LENGTH.size : end], max_bytes=MAX_TEXT_BYTES, max_values=MAX_VALUES)
        decoder = _Decoder(memoryview(message)[end:], resolve)
        value = decoder.decode(tree, 0)
        if decoder.elements:
            raise CodecError("the message is longer than its arrays")
        return value
    except CodecError:
        raise
    except Exception as error:  # data that a hostile process made up may fail in any way
        raise CodecError(f"a malformed message: {type(error).__name__}: {str(error)[:500]}") from None


class _Decoder:
    def __init__(self, elements: memoryview, resolve: Callable[[int], object] | None) -> None:
        self.elements = elements  # those that are not read yet
        self.resolve = resolve

    def decode(self, tree: Any, depth: int) -> Any:
        if depth > 2 * MAX_DEPTH:
            raise CodecError(f"data are nested more than {MAX_DEPTH} levels deep")
        if isinstance(tree, str):
            return tree.encode("utf-8", "replace").decode()  # lone surrogates cannot be printed
        if isinstance(tree, int) and tree.bit_length() > MAX_INTEGER_BITS:
            raise CodecError(f"an integer of more than {MAX_INTEGER_BITS} bits")
        if tree is None or isinstance(tree, (bool, int, float)):
            return tree
        if isinstance(tree, list):
            return [self.decode(item, depth + 1) for item in tree]
        ((kind, body),) = tree.items()
        if kind == "$tensor" and self.resolve:
            import torch

            return torch.from_numpy(self.take(*body))
        if kind in ("$array", "$tensor"):
            return self.take(*body)
        if kind == "$bytes":
            return self.take(*body).tobytes()
        if kind == "$onnx" and self.resolve:
            import onnx

            return onnx.load_model_from_string(self.take(*body).tobytes())
        if kind == "$remote" and self.resolve:
            return self.resolve(int(body))
        if kind == "$object":
            handle, type_name, text = body
            return Remote(int(handle), str(type_name)[:100], str(text)[:200])
        children = self.decode(body, depth + 1)
        if kind == "$graph":
            return self.graph(*children)
        return DECODERS[kind](children)

    def take(self, dtype: str, *shape: int) -> np.ndarray:
        """Return the next array, a copy that can be written."""
        # an empty array can have long axes, too, of which a sum along the empty one has the length
        if len(shape) > MAX_AXES or math.prod(max(n, 1) for n in shape) > MAX_ARRAY_BYTES:
            raise CodecError("an array has too many dimensions or elements")
        if not NUMERIC.fullmatch(dtype) or any(type(n) is not int or n < 0 for n in shape):
            raise CodecError("the type of an array is not that of numbers, or its shape is none")
        size = np.dtype(dtype).itemsize * math.prod(shape)
        if size > len(self.elements):
            raise CodecError("the message is shorter than its arrays")
        elements, self.elements = self.elements[:size], self.elements[size:]
        return np.frombuffer(elements, dtype).reshape(shape).copy()

    def graph(self, text: object, constants: object) -> Any:
        if not isinstance(text, str) or not isinstance(constants, dict):
            raise CodecError("malformed graph message: expected the graph's text and its constants")
        if not all(isinstance(key, str) and isinstance(value, np.ndarray) for key, value in constants.items()):
            raise CodecError("the constants of a graph are arrays by their names")
        if self.resolve is None:
            return Hir(text, constants)
        from mlhood.compiler.hir.parse import parse

        return parse(text, constants)


def _distinct(keys: Iterable[Any]) -> list[Any]:
    """Return keys of a dictionary or set, unless so many have the same hash that comparing them would take minutes."""
    keys = list(keys)
    if any(count > MAX_COLLISIONS for _, count in Counter(map(hash, keys)).most_common(1)):
        raise CodecError("too many keys with the same hash, or the same key too often")
    return keys


def _dictionary(pairs: list) -> dict:
    keys, values = [key for key, _ in pairs], [value for _, value in pairs]
    return dict(zip(_distinct(keys), values, strict=True))


def _tensor_type(parts: list) -> Any:
    from mlhood.compiler.hir.types import TensorType

    element, *shape = parts
    if not isinstance(element, str) or len(shape) > MAX_AXES:
        raise CodecError("a type is the name of its elements, and a shape")
    if not all(isinstance(axis, str) or (type(axis) is int and abs(axis) < MAX_AXIS) for axis in shape):
        raise CodecError("each axis of a shape is a name or an integer")  # a negative one is for the check to explain
    return TensorType(element, tuple(shape))


def _frame(columns: dict) -> Any:
    import pandas

    if not isinstance(columns, dict) or len(columns) > MAX_COLUMNS:
        raise CodecError(f"a frame has at most {MAX_COLUMNS:,} columns by their names")
    if not all(isinstance(name, str) and isinstance(column, list) for name, column in columns.items()):
        raise CodecError("a column of a frame is a list")  # pandas would align dictionaries, in a table of all keys
    if len({len(column) for column in columns.values()}) > 1:
        raise CodecError("the columns of a frame have different lengths")
    return pandas.DataFrame(columns)


DECODERS: dict[str, Callable[[Any], Any]] = {
    "$tuple": tuple,
    "$set": lambda items: frozenset(_distinct(items)),
    "$dict": _dictionary,
    "$frame": _frame,
    "$type": _tensor_type,
}
