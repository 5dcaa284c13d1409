"""Deterministic mutations of ONNX files, by index.

A third of the mutations are of bytes (flips, truncations, insertions, duplications, splices), the others of protobuf
messages: a field anywhere in the model gets an extreme or unrelated value, an entry is dropped, repeated or swapped.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import onnx
from google.protobuf.message import DecodeError, EncodeError, Message

INTEGERS = (0, 1, -1, 2, 3, 5, 7, 11, 13, 64, 1000, 2**16)
INTEGERS += (2**31 - 1, 2**31, -(2**31), 10**12, 2**62, 2**63 - 1, -(2**63))
FLOATS = (0.0, -0.0, 1.0, -1.0, 1e-45, 1e38, float("inf"), float("-inf"), float("nan"))
STRINGS = (
    "",
    "x",
    "\n%x : float32[]",
    "a\0b",
    "\x1b[2J",
    "../../../etc/passwd",
    "/etc/passwd",
    "Ω" * 300,
    "com.microsoft",
    "Relu",
    "Loop",
    "Resize",
    "SAME_UPPER",
)
MAX_BYTES = 2**20  # larger models are not mutated further


def mutation(index: int, corpus: Sequence[bytes]) -> bytes:
    """Return a mutated copy of one of the files."""
    draw = random.Random(index)
    data = corpus[index % len(corpus)]
    if draw.random() < 0.3:
        for _ in range(draw.choice((1, 1, 2, 8))):
            data = draw.choice(BYTE_MUTATIONS)(draw, data, corpus)
        return data
    model = onnx.ModelProto.FromString(data)
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        if model.ByteSize() < MAX_BYTES:
            mutate_message(draw, model)
    try:
        return model.SerializeToString()
    except (EncodeError, ValueError):
        return data


# -- bytes


def _position(draw: random.Random, data: bytes) -> int:
    """Return a position, mostly outside of the weights."""
    for _ in range(8):
        at = draw.randrange(len(data) + 1)
        if len(data) < 4096 or data[max(at - 32, 0) : at + 32].isascii():
            return at
    return draw.randrange(len(data) + 1)


def flip(draw: random.Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    at = _position(draw, data[:-1])
    return data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)]) + data[at + 1 :] if data else data


def overwrite(draw: random.Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    at, new = _position(draw, data), draw.choice((b"\0", b"\xff", b"\x7f", b"\x80", b"\xff" * 9 + b"\1"))
    return data[:at] + new + data[at + len(new) :]


def truncate(draw: random.Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    return data[: _position(draw, data)]


def insert(draw: random.Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    at = _position(draw, data)
    return data[:at] + draw.randbytes(draw.choice((1, 2, 16))) + data[at:]


def remove(draw: random.Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    at = _position(draw, data)
    return data[:at] + data[at + draw.choice((1, 2, 16)) :]


def duplicate(draw: random.Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    start = _position(draw, data)
    piece = data[start : start + draw.choice((1, 8, 64, 512))]
    return data[:start] + piece * draw.choice((2, 2, 100)) + data[start + len(piece) :]


def splice(draw: random.Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    other = draw.choice(corpus)
    return data[: _position(draw, data)] + other[_position(draw, other) :]


BYTE_MUTATIONS: tuple[Callable[[random.Random, bytes, Sequence[bytes]], bytes], ...] = (
    flip,
    flip,
    overwrite,
    truncate,
    insert,
    remove,
    duplicate,
    splice,
)


# -- messages


def mutate_message(draw: random.Random, model: onnx.ModelProto) -> None:
    """Mutate one field somewhere in the model."""
    messages = list(_messages(model))
    by_type: dict[str, list[Message]] = {}
    for message in messages:
        by_type.setdefault(type(message).__name__, []).append(message)
    # Choose the type first, because there are many shapes and few operator sets.
    message = draw.choice(by_type[draw.choice(sorted(by_type))])
    fields = list(message.DESCRIPTOR.fields)
    set_fields = [field for field, _ in message.ListFields()]
    field = draw.choice(set_fields if set_fields and draw.random() < 0.8 else fields)
    if field.is_repeated:
        _mutate_list(draw, message, field, model)
    elif field.message_type is not None:
        _mutate_submessage(draw, message, field, messages)
    else:
        setattr(message, field.name, _value(draw, field, model))


def _messages(message: Message) -> Iterator[Message]:
    yield message
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        for inner in value if field.is_repeated else [value]:
            yield from _messages(inner)


def _mutate_list(draw: random.Random, message: Message, field: Any, model: onnx.ModelProto) -> None:
    entries = getattr(message, field.name)
    action = draw.choice(("change", "change", "drop", "repeat", "swap", "clear", "many"))
    if action == "clear" or not entries:
        del entries[:]
        if field.message_type is None:
            entries.extend([_value(draw, field, model)] * draw.choice((1, 2, 7)))
        return
    at = draw.randrange(len(entries))
    old = list(entries)
    if field.message_type is not None:
        old = [type(entry).FromString(entry.SerializePartialToString()) for entry in old]
    new = {
        "drop": lambda: old[:at] + old[at + 1 :],
        "repeat": lambda: [*old, old[at]],
        "swap": lambda: old[at:] + old[:at],
        "many": lambda: old + [old[at]] * draw.choice((100, 3000)),
    }.get(action)
    if new is None and field.message_type is None:
        entries[at] = _value(draw, field, model)
        return
    del entries[:]
    entries.extend(new() if new is not None else old[::-1])


def _mutate_submessage(draw: random.Random, message: Message, field: Any, messages: list[Message]) -> None:
    same = [other for other in messages if other.DESCRIPTOR is field.message_type]
    if not same or draw.random() < 0.5:
        message.ClearField(field.name)
        return
    copied = draw.choice(same).SerializePartialToString()
    inner = getattr(message, field.name)
    try:
        inner.ParseFromString(copied)
    except DecodeError:
        message.ClearField(field.name)


def _value(draw: random.Random, field: Any, model: onnx.ModelProto) -> Any:
    if field.enum_type is not None:
        return draw.choice(list(field.enum_type.values_by_number))
    if field.cpp_type in (field.CPPTYPE_INT32, field.CPPTYPE_INT64, field.CPPTYPE_UINT64, field.CPPTYPE_UINT32):
        return _clamp(draw.choice(INTEGERS) if draw.random() < 0.5 else draw.randrange(-8, 64), field)
    if field.cpp_type in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        return draw.choice(FLOATS)
    if field.type == field.TYPE_BYTES:
        return draw.choice((b"", b"\xff", b"VALID", b"constant", b"nearest", draw.randbytes(16)))
    return draw.choice(_names(model)) if draw.random() < 0.6 else draw.choice(STRINGS)


def _clamp(value: int, field: Any) -> int:
    bits = 31 if field.cpp_type == field.CPPTYPE_INT32 else 63
    signed = field.cpp_type in (field.CPPTYPE_INT32, field.CPPTYPE_INT64)
    return max(-(2**bits) if signed else 0, min(value, 2**bits - 1))


def _names(model: onnx.ModelProto) -> list[str]:
    names = [tensor.name for tensor in model.graph.initializer] + [value.name for value in model.graph.input]
    for node in model.graph.node:
        names += [*node.input, *node.output, node.op_type]
    return sorted(set(names)) or ["x"]
