"""Read and validate ONNX models, as tools write them and ONNX Runtime runs them.

Beyond ONNX's own checker, names must be valid UTF-8 and functions not recursive. What that checker refuses although the
graph is clear is repaired (see `mlhood.exchange.repair`), or ignored: the declared types of outputs and of intermediate
values, which follow from the nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError

from mlhood.errors import ExchangeError
from mlhood.exchange.external import MAX_MODEL_BYTES, fetch_external, too_large, without_weights
from mlhood.exchange.functions import STANDARD, all_nodes, check_functions
from mlhood.exchange.repair import repair
from mlhood.files.paths import did_you_mean, file_format

# Domains whose operators need no definition in the file.
KNOWN_DOMAINS = {"", "ai.onnx", "ai.onnx.ml", "ai.onnx.training", "ai.onnx.preview", "com.microsoft"}

# Files that are often passed by mistake, by their format.
_OTHER_FILES = {
    "PNG": "a PNG image",
    "JPEG": "a JPEG image",
    "PDF": "a PDF document",
    "ZIP": "a ZIP archive, such as torch.save writes",
    "gzip": "a gzip archive",
    "HDF5": "an HDF5 file, such as Keras writes",
    "pickle": "a Python pickle",
    "markup": "HTML, XML or SVG text",
    "JSON": "JSON text",
}
# ONNX Runtime knows these in every opset, and its optimiser writes them into old models; ONNX since the given one.
_IN_EVERY_OPSET = {"LayerNormalization": 17, "ThresholdedRelu": 10}
_SCALAR = onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, ())
_EXPORT_AGAIN = "export the model again with mlhood.exchange.export, or copy the file again"


def load(model: str | Path | bytes | onnx.ModelProto, *, types: bool = True) -> onnx.ModelProto:
    """Read an ONNX model with its external data, and check that it is complete and valid.

    Args:
        model: A file, its contents as bytes, or a proto, which is not modified. It is returned itself unless it needs
            a repair, such as sorting its nodes.
        types: Also run ONNX's type inference as part of the check. Callers with their own type rules should pass
            False: the C++ inference can be made to crash the process by a malicious file.

    Raises:
        ExchangeError: The file is missing, not ONNX, truncated, lacks its external data, needs newer
            operators than the installed onnx supports, or its graph is invalid or has a cycle.
    """
    if isinstance(model, onnx.ModelProto):
        proto, where, folder = model, "the given model", None
    elif isinstance(model, bytes):
        proto, where, folder = _parse(model, "the given bytes"), "the given bytes", None
    elif not isinstance(model, (str, PathLike)):
        raise ExchangeError("invalid type of model", expected="a path, bytes or a ModelProto", got=type(model).__name__)
    else:
        path = Path(model)
        proto, where, folder = _parse(_read(path), str(path)), str(path), path.parent
    check_text(proto, where)
    _check_complete(proto, where)
    _check_versions(proto, where)
    check_functions(proto, where)
    proto = repair(proto, where, in_place=proto is not model)
    fetch_external(proto, where, folder)
    _check_graph(proto, where, types)
    return proto


def _read(path: Path) -> bytes:
    if not path.exists():
        todo = "check the path, or export the model first"
        raise ExchangeError("no such file", where=path, todo=did_you_mean(path) or todo)
    if path.is_dir():
        raise ExchangeError("the path is a folder, not an ONNX file", where=path, todo="give the path of a file")
    if not path.is_file():
        raise ExchangeError("not a regular file", where=path, todo="give the path of an ONNX file")
    try:
        if (size := path.stat().st_size) > MAX_MODEL_BYTES:
            raise too_large(str(path), size)
        return path.read_bytes()
    except OSError as error:
        raise ExchangeError("the file cannot be read", where=path, got=error.strerror or error) from error


def _parse(data: bytes, where: str) -> onnx.ModelProto:
    if not data:
        raise ExchangeError("not an ONNX file: it is empty", where=where, todo=_EXPORT_AGAIN)
    kind = _OTHER_FILES.get(file_format(data) or "")
    try:
        return onnx.ModelProto.FromString(data)
    except DecodeError as error:
        # ModelProto's first field is the IR version: tag 8, then a small number.
        if kind is None and data[0] == 8 and len(data) > 1 and 0 < data[1] < 64:
            raise ExchangeError(
                "the ONNX file is truncated or damaged",
                where=where,
                expected="a complete model",
                got=f"{len(data):,} bytes, incomplete",
                todo=_EXPORT_AGAIN,
            ) from error
        raise ExchangeError(
            "not an ONNX file",
            where=where,
            expected="a serialised onnx.ModelProto",
            got=kind or f"{len(data):,} bytes that start with {data[:8]!r}",
            todo=_EXPORT_AGAIN,
        ) from error


def _check_complete(proto: onnx.ModelProto, where: str) -> None:
    # Protobuf parses many unrelated files, and files truncated between two fields, without an error.
    present = {
        "the IR version": proto.ir_version > 0,
        "the operator set": len(proto.opset_import) > 0,
        "the graph": proto.HasField("graph"),
        "the graph's outputs": len(proto.graph.output) > 0,
    }
    missing = [name for name, is_present in present.items() if not is_present]
    if missing:
        raise ExchangeError(
            "not an ONNX file" if len(missing) > 2 else "the ONNX file is truncated or incomplete",
            where=where,
            expected="IR version, operator set and a graph with outputs",
            got="without " + ", ".join(missing),
            todo=_EXPORT_AGAIN,
        )


def _check_versions(proto: onnx.ModelProto, where: str) -> None:
    if proto.ir_version > onnx.IR_VERSION:
        raise _unsupported(where, f"IR version {onnx.IR_VERSION} at most", f"IR version {proto.ir_version}")
    newest = onnx.defs.onnx_opset_version()
    for entry in proto.opset_import:
        if entry.domain in ("", "ai.onnx") and not 1 <= entry.version <= newest:
            raise _unsupported(where, f"opset 1 to {newest}", f"opset {entry.version}")
    known_domains = KNOWN_DOMAINS | {function.domain for function in proto.functions}
    for node in proto.graph.node:
        if node.domain not in known_domains:
            raise ExchangeError(
                "the model uses operators of an unknown domain",
                where=f"{where}, node {node.name or node.op_type!r}",
                expected="operators of ai.onnx, or functions defined in the file",
                got=f"{node.domain}::{node.op_type}",
                todo="export the model without custom operators",
            )


def _unsupported(where: str, expected: str, got: str) -> ExchangeError:
    return ExchangeError(
        "unsupported ONNX version",
        where=where,
        expected=f"{expected} (onnx {onnx.__version__})",
        got=got,
        todo="export with an older opset, for example export(..., opset=20), or upgrade onnx",
    )


def _check_graph(proto: onnx.ModelProto, where: str, types: bool) -> None:
    try:
        onnx.checker.check_model(_for_checker(proto))
        if types:
            onnx.shape_inference.infer_shapes(_for_inference(proto), check_type=True, strict_mode=True)
    except Exception as error:  # the C++ checker raises several unrelated exception types
        raise ExchangeError(
            "the model's graph is invalid",
            where=where,
            got=_summary(error),
            todo="fix the named node, or export the model again",
        ) from error


def _for_checker(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy for the checker, which serialises it: without large weights, and with what the checker requires.

    That is a name of the graph, and types of inputs and outputs.
    """
    light = without_weights(proto)
    light.ir_version = max(light.ir_version, 4)  # before, initializers had to be inputs as well
    graph = light.graph
    graph.name = graph.name or "graph"
    initializers = {tensor.name for tensor in graph.initializer}
    for value in graph.input:
        if value.name in initializers:
            value.type.CopyFrom(_SCALAR)
        elif value.type.HasField("tensor_type"):
            value.type.tensor_type.shape.SetInParent()
    for value in graph.output:
        value.type.CopyFrom(_SCALAR)
    _hide_extensions(light)
    return light


def _for_inference(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy whose types have to be inferred from its inputs alone."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    del copy.graph.output[:]
    del copy.graph.value_info[:]
    _hide_extensions(copy)
    return copy


def _hide_extensions(model: onnx.ModelProto) -> None:
    """Move operators that only ONNX Runtime knows in a model's opset to its domain, which is not checked."""
    opset = max((entry.version for entry in model.opset_import if entry.domain in STANDARD), default=1)
    for node in all_nodes(model.graph):
        if not node.domain and opset < _IN_EVERY_OPSET.get(node.op_type, 0):
            node.domain = "com.microsoft"
            model.opset_import.add(domain=node.domain, version=1)


def _summary(error: BaseException) -> str:
    """Return the checker's message on one line, without its dump of the node."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    message = [line for line in lines if not line.startswith(("==>", "{", "}"))] or lines
    return " ".join(message)[:400] or type(error).__name__


def check_text(proto: onnx.ModelProto, where: str) -> None:
    """Check that all names are valid UTF-8, which protobuf does not.

    Raises:
        ExchangeError: A name is not UTF-8.
    """
    for name in _names(proto):
        # Depending on its implementation, protobuf returns invalid UTF-8 as bytes or raises on access.
        if not isinstance(name, str):
            raise ExchangeError(
                "a name in the model is not valid text",
                where=where,
                expected="UTF-8",
                got=repr(name[:40]),
                todo="the file is damaged: export the model again, or copy the file again",
            )


def _names(proto: onnx.ModelProto) -> Iterator[str | bytes]:
    graph = proto.graph
    try:
        yield graph.name
        yield from (entry.domain for entry in proto.opset_import)
        for node in (*graph.node, *(node for function in proto.functions for node in function.node)):
            yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
            yield from (attribute.name for attribute in node.attribute)
        for function in proto.functions:
            yield from (function.name, function.domain, *function.input, *function.output)
        yield from (tensor.name for tensor in graph.initializer)
        for value in (*graph.input, *graph.output):
            yield value.name
            yield from (axis.dim_param for axis in value.type.tensor_type.shape.dim)
    except UnicodeDecodeError as error:
        yield error.object
