"""The inputs of a run: checks of their names, element types and shapes; and random ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mlhood.compiler.hir.types import TensorType
from mlhood.errors import CompilerError, nearest


def bind_inputs(types: Mapping[str, TensorType], inputs: Mapping[str, Any], where: str) -> dict[str, np.ndarray]:
    """Return the inputs as arrays, in the order of their declaration.

    Args:
        types: The declared types by name.
        inputs: An array for each of them, by name.
        where: The graph or program in error messages.

    Raises:
        CompilerError: An input is missing, unknown or of another type, or a dynamic axis has two lengths.
    """
    check_inputs(inputs)
    if inputs.keys() != types.keys():
        raise CompilerError(
            "the given inputs do not match the graph's",
            where=where,
            expected=", ".join(types) or "none",
            got=", ".join(inputs) or "none",
        )
    sizes: dict[str, int] = {}
    arrays: dict[str, np.ndarray] = {}
    for name, type in types.items():
        arrays[name] = as_array(name, inputs[name])
        _check_input(name, arrays[name], type, sizes)
    return arrays


def random_inputs(
    types: Mapping[str, TensorType], dims: Mapping[str, int] | None = None, seed: int = 0
) -> dict[str, np.ndarray]:
    """Return random inputs, the same for the same seed.

    Floats are normally distributed with mean 0 and variance 1; integers of 8 bits cover their range; other integers are
    0 or 1, which are valid indices.

    Args:
        types: The inputs' types by name.
        dims: Lengths of dynamic axes by name; 1 for the others.
        seed: Of the random numbers.

    Raises:
        CompilerError: No input has a dynamic axis of such a name, or a length is invalid.
    """
    dims = dims or {}
    check_dims(types, dims)
    rng = np.random.default_rng(seed)
    arrays = {}
    for name, type in types.items():
        shape = tuple(dims.get(axis, 1) if isinstance(axis, str) else axis for axis in type.shape)
        if type.is_float:
            arrays[name] = rng.standard_normal(shape).astype(type.dtype)
        elif type.element in ("int8", "uint8"):
            limits = np.iinfo(type.dtype)
            arrays[name] = rng.integers(limits.min, limits.max, shape, type.dtype, endpoint=True)
        else:
            arrays[name] = rng.integers(0, 2, shape).astype(type.dtype)
    return arrays


def check_dims(types: Mapping[str, TensorType], dims: Mapping[str, int]) -> None:
    """Check lengths that are given to dynamic axes by name.

    Raises:
        CompilerError: No type has a dynamic axis of such a name, or a length is not a number.
    """
    check_names([axis for type in types.values() for axis in type.shape if isinstance(axis, str)], dims)


def check_names(axes: Sequence[str], dims: Mapping[str, int]) -> None:
    """Check lengths that are given to dynamic axes by name.

    Args:
        axes: The names of all dynamic axes.
        dims: The lengths.

    Raises:
        CompilerError: There is no dynamic axis of such a name, or a length is not a number.
    """
    if not isinstance(dims, Mapping):
        raise CompilerError("invalid lengths of axes", expected="a dict, such as {'batch': 1}", got=repr(dims))
    for name, length in dims.items():
        if name not in axes:
            expected = ", ".join(dict.fromkeys(axes)) or "none"
            what, todo = "the graph's inputs have no such dynamic axis", "choose one of these, or leave the length out"
            raise CompilerError(what, expected=expected, got=repr(name), todo=todo)
        if isinstance(length, bool) or not isinstance(length, int) or length < 0:
            raise CompilerError("invalid length of an axis", where=name, expected="0 or more", got=repr(length))


def check_given(option: str, given: Mapping[str, Any], names: Sequence[str]) -> None:
    """Raise CompilerError unless an argument is a mapping from names of inputs."""
    if not isinstance(given, Mapping):
        raise CompilerError(f"invalid {option}", expected="a dict by the names of inputs", got=repr(given))
    for name in given:
        if name not in names:
            what, expected = f"{option} of an unknown input", ", ".join(names) or "none"
            raise CompilerError(what, expected=expected, got=repr(name), todo=nearest(name, names))


def as_constant(name: str, given: ArrayLike, type: TensorType) -> np.ndarray:
    """Return a constant that is given for an input as an array of its type.

    Numbers are converted where the element type can represent them, and leading axes of length 1 may be left out.

    Raises:
        CompilerError: It is not an array, or has elements or a shape that the type does not allow.
    """
    where = f"constant {name!r}"
    array = as_array(name, given)
    with np.errstate(all="ignore"):
        converted = array.astype(type.dtype, copy=False) if array.dtype.kind in "biuf" else array
    if array.dtype != type.dtype and (array is converted or not (type.is_float or np.array_equal(array, converted))):
        what = "a constant cannot be converted to the element type of its input"
        raise CompilerError(what, where=where, expected=type.element, got=repr(given))
    shape = (1,) * (type.rank - converted.ndim) + converted.shape
    if len(shape) != type.rank or any(isinstance(a, int) and a != b for a, b in zip(type.shape, shape, strict=True)):
        raise CompilerError("a constant has the wrong shape", where=where, expected=type.shape, got=array.shape)
    return converted.reshape(shape)


def merge_inputs(inputs: Mapping[str, Any] | None, by_name: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return inputs that are given in a mapping, as keyword arguments, or both.

    Raises:
        CompilerError: The inputs are not a mapping.
    """
    if inputs is None:
        return by_name
    check_inputs(inputs)
    return {**inputs, **by_name}


def check_inputs(inputs: object) -> None:
    """Raise CompilerError unless inputs are given by name."""
    if not isinstance(inputs, Mapping):
        expected = "a dict with an array for each input"
        raise CompilerError("inputs must be given by name", expected=expected, got=type(inputs).__name__)


def as_array(name: str, value: Any) -> np.ndarray:
    """Return what is given for an input as an array, or raise CompilerError."""
    try:
        return np.asarray(value)
    except (ValueError, TypeError) as error:  # such as nested lists of different lengths
        raise CompilerError("an input cannot be converted to an array", where=f"input {name!r}", got=error) from error


def _check_input(name: str, array: np.ndarray, type: TensorType, sizes: dict[str, int]) -> None:
    where = f"input {name!r}"
    if array.dtype != type.dtype:
        raise CompilerError(
            "an input has the wrong dtype",
            where=where,
            expected=type.element,
            got=array.dtype.name,
            todo=f"convert it with .astype('{type.element}')",
        )
    if array.ndim != type.rank:
        raise CompilerError("an input has the wrong shape", where=where, expected=type.shape, got=array.shape)
    for axis, size in zip(type.shape, array.shape, strict=True):
        required = sizes.setdefault(axis, size) if isinstance(axis, str) else axis
        if size != required:
            expected = f"{type.shape} with {axis} = {required}" if isinstance(axis, str) else type.shape
            raise CompilerError("an input has the wrong shape", where=where, expected=expected, got=array.shape)
