"""Running a model with ONNX Runtime, the reference that the course did not write."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

from mlhood.errors import ExchangeError
from mlhood.exchange.load import load

_SILENT = 4  # ONNX Runtime's log level "fatal": what goes wrong comes as an error, not on stderr

_DTYPES = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(float16)": np.float16,
    "tensor(int8)": np.int8,
    "tensor(uint8)": np.uint8,
    "tensor(int16)": np.int16,
    "tensor(uint16)": np.uint16,
    "tensor(int32)": np.int32,
    "tensor(uint32)": np.uint32,
    "tensor(int64)": np.int64,
    "tensor(uint64)": np.uint64,
    "tensor(bool)": np.bool_,
}


def run(
    model: str | Path | bytes | onnx.ModelProto, *arrays: Any, threads: int | None = None, **inputs: Any
) -> dict[str, np.ndarray]:
    """Run `model` once on the CPU.

    Args:
        model: What `load` takes.
        arrays: Inputs in the model's order, arrays or tensors of the shape and dtype that it declares.
        threads: How many to use; None leaves it to ONNX Runtime, 1 is the most repeatable.
        inputs: Inputs by name, instead of by order.

    Returns:
        Each output under its name.

    Raises:
        ExchangeError: The model cannot be read or run, or an input's name, shape or dtype is not the model's.
    """
    session = _session(load(model), threads)
    declared = {entry.name: entry for entry in session.get_inputs()}
    feed = _feed(declared, arrays, inputs)
    names = [entry.name for entry in session.get_outputs()]
    try:
        values = session.run(names, feed)
    except Exception as error:  # ONNX Runtime has no class of errors that is public
        raise _failed("ONNX Runtime could not run the model", error) from error
    return {name: np.asarray(value) for name, value in zip(names, values, strict=True)}


def _session(proto: onnx.ModelProto, threads: int | None) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = _SILENT
    if threads is not None:
        options.intra_op_num_threads = options.inter_op_num_threads = threads
    try:
        return onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # as above
        raise _failed("ONNX Runtime does not take this model", error) from error


def _feed(declared: Mapping[str, Any], arrays: tuple[Any, ...], inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
    by_order = dict(zip(declared, arrays, strict=False))
    given = {**by_order, **inputs}
    clashes = sorted(by_order.keys() & inputs.keys())
    if len(arrays) > len(declared) or clashes or given.keys() != declared.keys():
        got = [f"{len(arrays)} by order"] * bool(arrays) + sorted(inputs)
        raise ExchangeError(
            "these are not the model's inputs",
            expected=", ".join(declared),
            got=", ".join(got) or "none",
            todo=f"call run(model, {', '.join(f'{name}=...' for name in declared)})",
        )
    return {name: _checked(entry, given[name]) for name, entry in declared.items()}


def _checked(entry: Any, value: Any) -> np.ndarray:
    array = np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
    dtype = _DTYPES.get(entry.type)
    if dtype is not None and array.dtype != dtype:
        raise ExchangeError(
            "an input has the wrong dtype",
            where=f"input {entry.name!r}",
            expected=np.dtype(dtype).name,
            got=array.dtype.name,
            todo=f"convert it with .astype('{np.dtype(dtype).name}')",
        )
    fits = array.ndim == len(entry.shape) and all(
        not isinstance(wanted, int) or wanted == size for wanted, size in zip(entry.shape, array.shape, strict=True)
    )
    if not fits:
        raise ExchangeError(
            "an input has the wrong shape",
            where=f"input {entry.name!r}",
            expected=[wanted if wanted is not None else "?" for wanted in entry.shape],
            got=list(array.shape),
            todo="reshape the input, or export the model with dynamic_batch=True if only the batch differs",
        )
    return np.ascontiguousarray(array)


def _failed(what: str, error: Exception) -> ExchangeError:
    text = " ".join(str(error).split())
    # Its messages start with its own codes: "[ONNXRuntimeError] : 2 : INVALID_ARGUMENT : ...".
    reason = text.split(" : ", 3)[-1] if text.startswith("[ONNXRuntimeError]") else text
    return ExchangeError(
        what,
        got=reason[:300],
        todo=f"check the model's opset and operators (onnxruntime {onnxruntime.__version__})",
    )
