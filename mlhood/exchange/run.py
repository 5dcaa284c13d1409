"""Run a model with ONNX Runtime, the independent reference implementation."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from mlhood.errors import ExchangeError
from mlhood.exchange.load import load

if TYPE_CHECKING:
    import onnxruntime

_FATAL = 4  # ONNX Runtime's log level: failures are reported as exceptions, not on stderr

# ONNX Runtime's name of a type -> dtype
_DTYPES = {f"tensor({sign}int{bits})": np.dtype(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)}
_DTYPES |= {"tensor(float16)": np.dtype("float16"), "tensor(float)": np.dtype("float32")}
_DTYPES |= {"tensor(double)": np.dtype("float64"), "tensor(bool)": np.dtype("bool")}


def run(
    model: str | Path | bytes | onnx.ModelProto, /, *arrays: Any, threads: int | None = None, **inputs: Any
) -> dict[str, np.ndarray]:
    """Run `model` once on the CPU.

    Args:
        model: What `load` takes.
        arrays: Inputs in the model's order, arrays or tensors of the declared shape and dtype.
        threads: Number of threads; None leaves it to ONNX Runtime, 1 gives the most reproducible results.
        inputs: Inputs by name, instead of by position.

    Returns:
        The outputs by name.

    Raises:
        ExchangeError: The model cannot be read or run, or an input's name, shape or dtype does not match it.
    """
    session = _session(load(model), threads)
    declared = {entry.name: entry for entry in session.get_inputs()}
    feed = _feed(declared, arrays, inputs)
    names = [entry.name for entry in session.get_outputs()]
    try:
        values = session.run(names, feed)
    except Exception as error:  # ONNX Runtime has no public exception class
        raise _failed("ONNX Runtime could not run the model", error) from error
    return {name: np.asarray(value) for name, value in zip(names, values, strict=True)}


def _session(proto: onnx.ModelProto, threads: int | None) -> onnxruntime.InferenceSession:
    import onnxruntime  # only here: the compiler, which imports this package, does without it

    options = onnxruntime.SessionOptions()
    options.log_severity_level = _FATAL
    # Without VNNI, the default uint8 x int8 kernels saturate sums of two products at int16.
    options.add_session_config_entry("session.x64quantprecision", "1")
    if threads is not None:
        options.intra_op_num_threads = options.inter_op_num_threads = threads
    try:
        return onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # see above
        raise _failed("ONNX Runtime rejected the model", error) from error


def _feed(declared: Mapping[str, Any], arrays: tuple[Any, ...], inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
    by_position = dict(zip(declared, arrays, strict=False))
    values = {**by_position, **inputs}
    if len(arrays) > len(declared) or by_position.keys() & inputs.keys() or values.keys() != declared.keys():
        got = [f"{len(arrays)} by position"] * bool(arrays) + sorted(inputs)
        raise ExchangeError(
            "the given inputs do not match the model's",
            expected=", ".join(declared),
            got=", ".join(got) or "none",
            todo=f"call run(model, {', '.join(f'{name}=...' for name in declared)})",
        )
    return {name: _check_input(entry, values[name]) for name, entry in declared.items()}


def _check_input(entry: Any, value: Any) -> np.ndarray:
    array = np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
    dtype = _DTYPES.get(entry.type)
    if dtype is not None and array.dtype != dtype:
        raise ExchangeError(
            "an input has the wrong dtype",
            where=f"input {entry.name!r}",
            expected=dtype.name,
            got=array.dtype.name,
            todo=f"convert it with .astype('{dtype.name}')",
        )
    matches = not entry.shape or (  # ONNX Runtime checks scalars, and gives no axes where no shape is declared, either
        array.ndim == len(entry.shape)
        and all(not isinstance(a, int) or a in (size, -1) for a, size in zip(entry.shape, array.shape, strict=True))
    )
    if not matches:
        raise ExchangeError(
            "an input has the wrong shape",
            where=f"input {entry.name!r}",
            expected=[axis if axis is not None else "?" for axis in entry.shape],
            got=list(array.shape),
            todo="reshape the input, or export the model with dynamic_batch=True if only the batch differs",
        )
    return np.ascontiguousarray(array)


def _failed(what: str, error: Exception) -> ExchangeError:
    from onnxruntime import __version__ as version

    text = " ".join(str(error).split())
    # Drop the status code: "[ONNXRuntimeError] : 2 : INVALID_ARGUMENT : ...".
    reason = text.split(" : ", 3)[-1] if text.startswith("[ONNXRuntimeError]") else text
    return ExchangeError(what, got=reason[:300], todo=f"check the model's opset and operators (onnxruntime {version})")
