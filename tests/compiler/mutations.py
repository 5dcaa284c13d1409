"""Deterministic mutations of ONNX files, by index.

They are of protobuf messages in their JSON form: a field anywhere in the model gets an extreme or unrelated value, is
dropped or repeated. Bytes are corrupted by tests/exchange/test_load.py.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import onnx
from google.protobuf import json_format

INTEGERS = (0, 1, -1, 2, 3, 5, 7, 11, 13, 64, 1000, 2**16)
INTEGERS += (2**31 - 1, 2**31, -(2**31), 10**12, 2**62, 2**63 - 1, -(2**63))
FLOATS = (0.0, -0.0, 1.0, -1.0, 1e-45, 1e38, "Infinity", "-Infinity", "NaN")
STRINGS = ("", "x", "\n%x : float32[]", "a\0b", "\x1b[2J", "../../../etc/passwd", "/etc/passwd", "Ω" * 300)
STRINGS += ("com.microsoft", "Relu", "Loop", "Resize", "SAME_UPPER")
MAX_BYTES = 2**20  # larger models are not mutated further


def mutation(index: int, corpus: Sequence[bytes]) -> bytes:
    """Return a mutated copy of one of the files."""
    draw = random.Random(index)
    model = onnx.ModelProto.FromString(corpus[index % len(corpus)])
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        if model.ByteSize() < MAX_BYTES:
            model = mutate_message(draw, model)
    return model.SerializeToString()


def mutate_message(draw: random.Random, model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with one field changed; the model itself if that gives no message."""
    data = json_format.MessageToDict(model, preserving_proto_field_name=True)
    by_name: dict[str, list[tuple[Any, Any]]] = {}
    for name, container, key in places(data):
        by_name.setdefault(name, []).append((container, key))
    # choose the field first, because there are many lengths of axes and few operator sets
    name = draw.choice(sorted(by_name))
    container, key = draw.choice(by_name[name])
    old, (donor, donor_key) = container[key], draw.choice(by_name[name])
    action = draw.choice(("change", "change", "change", "swap", "drop", "many"))
    if action == "drop":
        del container[key]
    elif action == "many" and isinstance(container, list):
        container.extend([old] * draw.choice((1, 100, 3000)))
    elif action == "swap" or isinstance(old, dict | list | bool):
        container[key] = donor[donor_key]
    else:
        container[key] = changed(draw, old)
    try:
        return json_format.ParseDict(data, onnx.ModelProto())
    except json_format.ParseError:
        return model


def places(data: Any, name: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield the name of each field, its container and its key in it; an element of a list has the list's name."""
    for key, value in [*(data.items() if isinstance(data, dict) else enumerate(data))]:
        inner = f"{key}" if isinstance(data, dict) else f"{name}[]"
        yield inner, data, key
        if isinstance(value, dict | list):
            yield from places(value, inner)


def changed(draw: random.Random, old: Any) -> Any:
    """Return another value of the kind of the old one: JSON has integers of 64 bits as strings."""
    if isinstance(old, float):
        return draw.choice(FLOATS)
    if isinstance(old, int) or old.lstrip("-").isdigit():
        number = draw.choice(INTEGERS) if draw.random() < 0.5 else draw.randrange(-8, 64)
        return number if isinstance(old, int) else str(number)
    return draw.choice(STRINGS)
