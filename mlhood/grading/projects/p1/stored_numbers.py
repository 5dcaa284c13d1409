"""Facts about a student's ONNX file beyond those of the oracle; the functions run in a limited process.

How many numbers it holds is counted wherever they are: every tensor, every attribute and every node of a model is
found by walking all of its fields. Names, texts of documentation and metadata do not count, as nothing that a model
computes depends on them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

FREE_BYTES = 512  # of what describes operators (kernel, strides, padding), not data
BYTES_OF_A_NAME = 2  # of an operator, or of an input: which values a node reads can stand for weights, too
RANDOM = ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial")
BYTES_OF_A_NUMBER = 4


def counted(data: bytes) -> list[Any]:
    """Return how many numbers a model holds (see `bill`), and the model without the shapes that it declares.

    ONNX Runtime believes these, right or wrong, and a model can read them: numbers that nobody counts. Only those of
    the model's inputs stay.
    """
    import onnx

    model = onnx.load_model_from_string(data)
    inputs = list(model.graph.input)
    del model.graph.input[:]
    for message in list(_messages(model)):
        if isinstance(message, (onnx.TypeProto.Tensor, onnx.TypeProto.SparseTensor)):
            message.ClearField("shape")
    model.graph.input.extend(inputs)
    return [sum(bill(data).values()), model.SerializeToString()]


def bill(data: bytes) -> dict[str, int]:
    """Return how many numbers an ONNX model holds, by tensor; one of more than four bytes, such as an int64, is two.

    Nodes, their inputs, and the integers and texts in their attributes count by their bytes, of which some are free.

    Raises:
        ValueError: It may hold more than can be counted: external data, a negative axis, or operators that are not
            ONNX's own or that draw random numbers.
    """
    import onnx

    model = onnx.load_model_from_string(data)
    messages = list(_messages(model))
    nodes = [message for message in messages if isinstance(message, onnx.NodeProto)]
    domains = {"", "ai.onnx", *(function.domain for function in model.functions)}
    for node in nodes:
        if node.domain not in domains or node.op_type in RANDOM:
            raise ValueError(f"the operator {node.op_type} is not allowed: only ONNX's own, and none that is random")
    constants = [each for node in nodes if node.op_type == "Constant" for each in node.attribute]
    constants += [each for function in model.functions for each in function.attribute_proto]
    operators = [node for node in nodes if node.op_type != "Constant"]
    others = [each for node in operators for each in node.attribute if not _is_default(node.op_type, each)]
    described = BYTES_OF_A_NAME * sum(1 + len(node.input) for node in nodes) + sum(map(_described, others))
    found = Counter[str]()
    for message in messages:
        if isinstance(message, onnx.TensorProto):
            found[message.name] += _tensor(message)
        elif isinstance(message, onnx.SparseTensorProto):  # its shape can be read, and is not that of its values
            found["shapes of sparse tensors"] += 2 * len(message.dims)
    found["attributes"] += sum(len(each.floats) + each.HasField("f") for each in [*constants, *others])
    found["attributes"] += sum(
        2 * (len(each.ints) + each.HasField("i")) + sum(map(_text, _texts(each))) for each in constants
    )
    found["what describes operators"] += -(-max(0, described - FREE_BYTES) // BYTES_OF_A_NUMBER)
    return found


def _messages(message: Any) -> Iterator[Any]:
    """Yield a protobuf message and all that it contains."""
    from google.protobuf.message import Message

    yield message
    for field, value in message.ListFields():
        if field.message_type:
            for each in [value] if isinstance(value, Message) else value:
                yield from _messages(each)


def _tensor(tensor: Any) -> int:
    import numpy as np
    from onnx import TensorProto, helper

    if tensor.data_location == TensorProto.EXTERNAL:
        raise ValueError("the numbers are in another file")
    if min(tensor.dims, default=0) < 0:
        raise ValueError("a tensor has a negative axis")
    if tensor.data_type == TensorProto.STRING:
        return sum(max(1, _text(text)) for text in tensor.string_data)
    size = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.data_type)).itemsize
    # the shape of an empty tensor can be read, too
    return math.prod(dim or 1 for dim in tensor.dims) * -(-size // BYTES_OF_A_NUMBER)


def _is_default(operator: str, attribute: Any) -> bool:
    """Whether an attribute has the value that ONNX gives it if it is left out."""
    from onnx import defs, helper

    known = defs.get_schema(operator).attributes if defs.has(operator) else {}
    if attribute.name not in known or not known[attribute.name].default_value.type:
        return False
    return helper.get_attribute_value(attribute) == helper.get_attribute_value(known[attribute.name].default_value)


def _described(attribute: Any) -> int:
    """Return how many bytes the integers and texts of an attribute take."""
    integers = [*attribute.ints, *([attribute.i] if attribute.HasField("i") else [])]
    return sum(max(1, -(-number.bit_length() // 8)) for number in integers) + sum(map(len, _texts(attribute)))


def _texts(attribute: Any) -> list[bytes]:
    return [*attribute.strings, attribute.s]


def _text(text: bytes) -> int:
    return -(-len(text) // BYTES_OF_A_NUMBER)
