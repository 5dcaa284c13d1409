"""The base class of operators: the questions that the compiler asks of each, and checks that type rules share.

Everything about an operator is in its class; `mlhood.compiler.operators` says how to add one.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import Field, dataclass, fields
from inspect import signature
from typing import Any, ClassVar

from mlhood.compiler.hir.types import Shape, TensorType
from mlhood.errors import CompilerError

Permutation = tuple[int, ...]
Range = tuple[float, float]
UNBOUNDED: Range = (-math.inf, math.inf)


@dataclass(frozen=True)
class Operator:
    """Base of all operators: frozen dataclasses whose fields are the attributes.

    Attributes are known when compiling: int, float, bool, str, a `Quantization`, None, or tuples of these.
    What is only known when running is an input. An import rule may use expressions of lengths (`Length`) for integers,
    where `infer` can: the operator is a `Dynamic` one then, until the lengths are known.

    Class attributes:
        arity: The least and the largest number of inputs, None for no upper bound; by default, of the type rule.
        onnx: The ONNX operators that `from_onnx` imports.
        onnx_names: Pairs of an attribute and its name in ONNX, where that is another one.
        moves: It only moves or copies elements, so that it works on names of axes as well as on numbers.
        commutative: Its two inputs can be swapped, so a drawing need not tell them apart.
        converts: It converts between reals and quantised integers, see `to_onnx`.
        family: Which operators it is drawn like: a key of `hir.describe.styles.FAMILIES`.
        quantization_rule: How `mlhood.compiler.quantize` computes it with integers: a key of `quantize.quantize.RULES`;
            None if it stays in float.
    """

    arity: ClassVar[tuple[int, int | None]] = (1, 1)
    onnx: ClassVar[tuple[str, ...]] = ()
    onnx_names: ClassVar[tuple[tuple[str, str], ...]] = ()
    moves: ClassVar[bool] = False
    commutative: ClassVar[bool] = False
    converts: ClassVar[bool] = False
    family: ClassVar[str] = "other"
    quantization_rule: ClassVar[str | None] = None

    def __init_subclass__(cls) -> None:
        if "infer" in vars(cls) and "arity" not in vars(cls):
            parameters = list(signature(cls.infer).parameters.values())[1:]
            several = any(each.kind is each.VAR_POSITIONAL for each in parameters)
            named = [each for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
            cls.arity = sum(each.default is each.empty for each in named), None if several else len(named)

    @property
    def name(self) -> str:
        """The operator's name in the text form."""
        return type(self).__name__

    @property
    def label(self) -> str:
        """The operator's name in drawings, without the activation that was fused into it."""
        return self.name

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes by name, in the order of declaration."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def non_default_attributes(self) -> dict[str, Any]:
        """The attributes that differ from their defaults: what the text form and drawings show."""
        return {field.name: getattr(self, field.name) for field in fields(self) if _differs(self, field)}

    def infer(self, *args: Any, **kwargs: Any) -> Any:
        """Type rule: return the output's type, or a tuple of several, from the inputs' types (None for one left out).

        Raises:
            CompilerError: The types are invalid for this operator.
        """
        raise NotImplementedError

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        """Reference semantics: return the output, or a tuple of several, from the inputs (None for one left out).

        The target xla traces it for most operators: functions of arrays are taken from their `namespace` then.
        """
        raise NotImplementedError

    def evaluate_typed(self, types: tuple[TensorType | None, ...], *args: Any, **kwargs: Any) -> Any:
        """Reference semantics of operators that also need the inputs' types, for the quantisation parameters."""
        return self.evaluate(*args, **kwargs)

    def specialized(self, shapes: Sequence[Shape | None]) -> tuple[Operator, int]:
        """Return the operator without attributes that depend on lengths, and how many of the inputs it reads.

        Args:
            shapes: The inputs' shapes, None for one left out; dynamic axes may remain.
        """
        return self, len(shapes)

    def workspace(self, *types: TensorType | None) -> int:
        """Return the number of elements of the largest temporary array in `evaluate`.

        Args:
            types: The inputs' types, without dynamic axes.
        """
        return 0

    def to_onnx(self, writer: Any, inputs: list[str], name: str) -> str | None:
        """Export rule: add the ONNX nodes that compute this operator on reals, return the name of the result.

        By default, one node with the same attributes, see `onnx_names`; None if no ONNX operator is imported as it.

        Args:
            writer: The `OnnxWriter`; `writer.node` is the node to export.
            inputs: Names of the inputs as reals, "" for one left out; if the operator `converts`, as they are stored.
            name: What the result should be called.
        """
        names = dict(self.onnx_names)
        attributes = {names.get(key, key): value for key, value in self.attributes.items()}
        return writer.emit(self.onnx[0], *inputs, name=name, **attributes) if self.onnx else None

    def sink_transpose(self, permutation: Permutation) -> tuple[Operator, Permutation] | None:
        """Return g and q such that f(T_p(x)) = T_q(g(x)), None if there are none.

        f is this operator and T a Transpose. If f has several inputs, all are transposed by p, or broadcast.
        """
        return None

    def value_range(self, y: TensorType, *inputs: Range) -> Range | None:
        """Return bounds of the output's elements, from bounds of the inputs' (those left out excepted); None for none.

        Args:
            y: The output's type.
            inputs: The least and the largest element that each input can hold.
        """
        return None

    def macs(self, inputs: Sequence[tuple[int, ...]], output: tuple[int, ...]) -> int | None:
        """Return the number of multiply-accumulates for these shapes, padding included; None if it sums no products.

        Args:
            inputs: Shapes of the inputs, () for one left out.
            output: Shape of the first output.
        """
        return None

    @classmethod
    def from_onnx(cls, source: Any) -> Any:
        """Import rule: add the nodes for one `OnnxNode`, return its outputs: a `Value`, or a sequence of them.

        By default the attributes have the names `onnx_names` in ONNX, or the same.
        """
        attributes, names = {}, dict(cls.onnx_names)
        for field in fields(cls):
            value = source.attribute(names.get(field.name, field.name), field.default)
            attributes[field.name] = bool(value) if isinstance(field.default, bool) else value
        return source.add(cls(**attributes), *source.inputs)


def namespace(x: Any) -> Any:
    """Return the module of functions for an array, by the array API: NumPy, or jax.numpy when the target xla traces."""
    return x.__array_namespace__()


def single(number: float) -> float:
    """Return a number rounded to float32, as ONNX stores attributes, also those of operators on float64."""
    return struct.unpack("f", struct.pack("f", number))[0]


def _differs(operator: Operator, field: Field[Any]) -> bool:
    value = getattr(operator, field.name)
    return type(value) is not type(field.default) or value != field.default


def locate_error(error: CompilerError, where: str) -> CompilerError:
    """Return the error with a location, unless it has one."""
    if "where" in error.parts:
        return error
    parts = error.parts
    return type(error)(
        error.what, where=where, expected=parts.get("expected"), got=parts.get("got"), todo=parts.get("what to do")
    )


@contextmanager
def located(where: str, inputs: Sequence[Any] = ()) -> Iterator[None]:
    """Raise errors of an operator's evaluation in the block as CompilerErrors that name what is evaluated.

    Args:
        where: What is evaluated.
        inputs: Arrays whose shapes the error tells, None for one left out.
    """
    try:
        yield
    except CompilerError as error:
        raise locate_error(error, where) from error
    except (ValueError, TypeError, LookupError, MemoryError, ArithmeticError) as error:
        shapes = ", ".join("none" if array is None else str(list(array.shape)) for array in inputs)
        got = f"{shapes}: {error}" if inputs else error
        raise CompilerError("the operator failed on these inputs", where=where, got=got) from error


def require(condition: bool, what: str, *, expected: object = None, got: object = None) -> None:
    """Check a condition of a type rule; raise CompilerError if it is false."""
    if not condition:
        raise CompilerError(what, expected=expected, got=got)


def require_unquantized(*types: TensorType | None) -> None:
    """Raise CompilerError if a tensor is quantised, for operators that compute with the elements as they are stored."""
    if any(type is not None and type.quantization is not None for type in types):
        raise CompilerError("the operator does not support quantised tensors", todo="dequantise its inputs first")


def require_channels(x: TensorType) -> None:
    """Raise CompilerError unless a tensor has a batch and a channel axis and floating-point elements."""
    valid = x.rank >= 2 and x.is_float
    what = "the input must have a batch and a channel axis and floating-point elements"
    require(valid, what, got=f"{x.element}{list(x.shape)}")


def common_element(*types: TensorType | None) -> str:
    """Return the element type that all given types share; raise CompilerError if they differ."""
    elements = dict.fromkeys(type.element for type in types if type is not None)
    require(len(elements) == 1, "the element types differ", expected="one element type", got=", ".join(elements))
    return next(iter(elements))


def footprint(operator: Operator, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> int:
    """Return the bytes of the largest array that `evaluate` allocates: an output or a temporary array.

    Args:
        operator: The operator.
        inputs: The inputs' types, None for one left out, without dynamic axes.
        outputs: The types that the operator infers from them.
    """
    types = [type for type in (*inputs, *outputs) if type is not None]
    # integers are multiplied and added in 64 bits
    itemsize = max((type.dtype.itemsize if type.is_float else 8 for type in types), default=8)
    # `workspace` says how long an axis can become whose length depends on data
    sizes = [math.prod(axis for axis in type.shape if isinstance(axis, int)) for type in outputs]
    size = max(sizes, default=0)
    return itemsize * max(size, operator.workspace(*inputs))


def as_tuple(results: Any) -> tuple[Any, ...]:
    """Return one result, or several, as a tuple."""
    return results if isinstance(results, tuple) else (results,)


def infer_output_types(operator: Operator, types: Sequence[TensorType | None], where: str) -> tuple[TensorType, ...]:
    """Return the types of an operator's outputs by its type rule.

    Args:
        operator: The operator.
        types: The inputs' types, None for one left out.
        where: The object concerned, in error messages.

    Raises:
        CompilerError: The inputs are invalid for the operator.
    """
    least, most = operator.arity
    missing = [str(i) for i in range(least) if i >= len(types) or types[i] is None]
    if missing or (most is not None and len(types) > most):
        expected = f"{least}" if least == most else f"{least} to {most}" if most is not None else f"at least {least}"
        raise CompilerError("wrong number of inputs", where=where, expected=expected, got=len(types))
    try:
        outputs = as_tuple(operator.infer(*types))
    except CompilerError as error:
        raise locate_error(error, where) from error
    for type in outputs:
        if violation := type.size_violation:
            raise CompilerError("an output of the node is too large", where=where, got=violation)
    return outputs
