"""What an operator is: its attributes, its type rule, what it computes, and how it comes from ONNX.

Everything that is known of an operator stands in its one class. To add an operator, write such a class in a module of
`mlhood.compiler.operators` and name it in that module's `OPERATORS`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, ClassVar

from mlhood.errors import CompilerError

if TYPE_CHECKING:
    from mlhood.compiler.hir.graph import Value
    from mlhood.compiler.hir.source import Source


class Operator:
    """Base of all operators: frozen dataclasses whose fields are the attributes.

    Attributes are known when compiling: int, float, bool, str, a `Quantization`, None, or tuples of these. What is
    only known when running is an input.

    Class attributes:
        arity: The least and the most inputs; None where there is no most.
        onnx: The ONNX operators that `from_onnx` takes.
    """

    arity: ClassVar[tuple[int, int | None]] = (1, 1)
    onnx: ClassVar[tuple[str, ...]] = ()

    @property
    def name(self) -> str:
        """The operator's name in the text form."""
        return type(self).__name__

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes by name, in the order of declaration."""
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]

    def infer(self, *args: Any, **kwargs: Any) -> Any:
        """Type rule: from the inputs' types (None for one left out) to the output's type, or a tuple of them.

        Raises:
            CompilerError: The operator does not take these types.
        """
        raise NotImplementedError

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        """Reference semantics: from arrays (None for one left out) to an array, or a tuple of them."""
        raise NotImplementedError

    @classmethod
    def from_onnx(cls, source: Source) -> Value | Sequence[Value | None]:
        """Import rule: build the nodes for one ONNX node, return its outputs."""
        return source.add(cls(), *source.inputs)


def located(error: CompilerError, where: str) -> CompilerError:
    """Return the error with the place where it happened, unless it names one already."""
    if "where" in error.parts:
        return error
    parts = error.parts
    return type(error)(
        error.what, where=where, expected=parts.get("expected"), got=parts.get("got"), todo=parts.get("what to do")
    )


def as_tuple(results: Any) -> tuple[Any, ...]:
    """Return one result, or several, as a tuple."""
    return results if isinstance(results, tuple) else (results,)
