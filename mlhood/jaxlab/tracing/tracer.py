"""A tracer in a page: run a function once on values that have a shape but no numbers, and write down what it does.

This is the idea of a jaxpr. The function runs as ordinary Python; loops and branches are gone when it returns, and what
is left is a straight list of equations, which can be printed, drawn, cleaned up and run on arrays. What takes numbers
to decide cannot be traced. Unlike JAX, a value has no dtype, and an equation no attributes: `sum` is of everything.

Source: "Autodidax: JAX core from scratch", JAX's documentation, parts 1 and 2.

>>> program = trace(lambda x, w: relu(x @ w) * 2.0, (4, 3), (3, 5))
>>> program
{ lambda a:[4,3] b:[3,5] .
  let c:[4,5] = matmul a b
      d:[4,5] = relu c
      e:[4,5] = mul d 2.0
  in (e) }
>>> [y] = evaluate(program, x, w)
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mlhood.errors import MlhoodError

if TYPE_CHECKING:
    from mlhood.graph_drawing.drawing import Drawing

Shape = tuple[int, ...]


class TraceError(MlhoodError):
    """A function cannot be traced, or a program cannot be run."""

    stage = "jaxlab"


@dataclass(frozen=True)
class Variable:
    """A value that is not known yet.

    Args:
        number: Tells it from all others; `fresh` counts.
        shape: Its shape, () for one number.
    """

    number: int
    shape: Shape


Operand = Variable | float


@dataclass(frozen=True)
class Equation:
    """One operation.

    Args:
        op: A name of `SHAPES` and `NUMPY`.
        inputs: What it reads: variables, and Python's numbers as they are.
        output: What it makes.
    """

    op: str
    inputs: tuple[Operand, ...]
    output: Variable


@dataclass(frozen=True, repr=False)
class Program:
    """What a function does, in order: each equation reads inputs and what equations before it have made."""

    inputs: tuple[Variable, ...]
    equations: tuple[Equation, ...]
    outputs: tuple[Operand, ...]

    def names(self) -> dict[Variable, str]:
        """Return a letter for each variable, in the order in which they come: a to z, then aa, ab and so on.

        One that is read but never made, which is a mistake, has a question mark and its number.
        """
        made = dict.fromkeys([*self.inputs, *(one.output for one in self.equations)])
        read = [*(one for equation in self.equations for one in equation.inputs), *self.outputs]
        lost = {one: f"?{one.number}" for one in read if isinstance(one, Variable) and one not in made}
        return dict(zip(made, _letters(), strict=False)) | lost

    def __repr__(self) -> str:
        names = self.names()

        def said(one: Operand) -> str:
            return names[one] if isinstance(one, Variable) else repr(one)

        def bound(one: Variable) -> str:
            return f"{said(one)}:[{','.join(map(str, one.shape))}]"

        lines = [f"{bound(one.output)} = {one.op} {' '.join(map(said, one.inputs))}" for one in self.equations]
        body = "\n  let " + "\n      ".join(lines) if lines else ""
        head = " ".join(["{ lambda", *map(bound, self.inputs), "."])
        return f"{head}{body}\n  in ({', '.join(map(said, self.outputs))}) }}"

    def draw(self) -> Drawing:
        """Draw it from top to bottom; the drawing shows itself in a notebook, and has `save(path)`."""
        from mlhood.jaxlab.autodiff.autodiff_figures import program_graph

        return program_graph(self)


def _letters() -> Iterator[str]:
    for length in itertools.count(1):
        yield from map("".join, itertools.product("abcdefghijklmnopqrstuvwxyz", repeat=length))


# -- what each operation makes of shapes, and of arrays


def _broadcast(*shapes: Shape) -> Shape:
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError as error:
        raise TraceError(
            "these shapes cannot be stretched to one", expected="equal sizes, or 1, from the last axis on",
            got=" and ".join(map(str, map(list, shapes))),
        ) from error  # fmt: skip


def _matmul(a: Shape, b: Shape) -> Shape:
    if not a or not b or a[-1] != b[-2 if len(b) > 1 else 0]:
        raise TraceError("these shapes have no matrix product", expected="[M, K] and [K, N]", got=f"{a} and {b}")
    return (*_broadcast(a[:-2], b[:-2]), *a[-2:-1], *(b[-1:] if len(b) > 1 else ()))


def _relu(x: Any) -> Any:
    return np.maximum(x, 0)


SHAPES: dict[str, Callable[..., Shape]] = {
    **dict.fromkeys(("add", "sub", "mul", "div", "pow", "maximum"), _broadcast),
    **dict.fromkeys(("neg", "relu", "exp", "log"), lambda shape: shape),
    "matmul": _matmul,
    "sum": lambda shape: (),
    "transpose": lambda shape: shape[::-1],
}

NUMPY: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "pow": np.power,
    "maximum": np.maximum,
    "neg": np.negative,
    "relu": _relu,
    "exp": np.exp,
    "log": np.log,
    "matmul": np.matmul,
    "sum": np.sum,
    "transpose": np.transpose,
}

_numbers = itertools.count()


def fresh(shape: Shape) -> Variable:
    """Return a variable that nothing else has."""
    return Variable(next(_numbers), tuple(shape))


def shape_of(operand: Operand) -> Shape:
    """Return a variable's shape; that of a number is ()."""
    return operand.shape if isinstance(operand, Variable) else ()


# -- the tracer


def record(equations: list[Equation], op: str, operands: Sequence[Operand]) -> Variable:
    """Write one operation down, and return the variable that stands for its result.

    Args:
        equations: What was written before; the operation comes to its end.
        op: A name of `SHAPES`.
        operands: What it reads.

    Raises:
        TraceError: The operands' shapes do not fit together.
    """
    output = fresh(SHAPES[op](*map(shape_of, operands)))
    equations.append(Equation(op, tuple(operands), output))
    return output


def _method(op: str) -> Callable[..., Any]:
    return lambda *values: _apply(op, *values)


def _operator(op: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return what Python calls for `self op other` and for `other op self`."""
    return _method(op), lambda self, other: _apply(op, other, self)


class Traced:
    """What a function is called with while it is traced: it looks like an array, and writes down what is done to it.

    Args:
        variable: The value that it stands for.
        equations: Where operations are written down.
        record: How; as the function of this name.
    """

    __array_ufunc__ = None  # NumPy's arrays leave `array + traced` to us

    def __init__(self, variable: Variable, equations: list[Equation], record: Callable[..., Variable]) -> None:
        self.variable = variable
        self.equations = equations
        self.record = record

    def __repr__(self) -> str:
        return f"Traced({list(self.shape)})"

    @property
    def shape(self) -> Shape:
        """The shape: known while tracing, so a program may depend on it."""
        return self.variable.shape

    @property
    def T(self) -> Any:  # noqa: N802 (NumPy's name)
        """All axes in the opposite order."""
        return transpose(self)

    __add__, __radd__ = _operator("add")
    __sub__, __rsub__ = _operator("sub")
    __mul__, __rmul__ = _operator("mul")
    __truediv__, __rtruediv__ = _operator("div")
    __matmul__, __rmatmul__ = _operator("matmul")
    __pow__, __rpow__ = _operator("pow")

    __neg__ = _method("neg")
    relu, exp, log = _method("relu"), _method("exp"), _method("log")
    sum, maximum, transpose = _method("sum"), _method("maximum"), _method("transpose")

    def _unknown(self, *_: Any) -> Any:
        raise TraceError(
            "a traced value has no number yet", where=repr(self), expected="operations that are written down",
            got="a comparison, `if`, `while`, or a conversion to a number or an array",
            todo="decide by its shape, or by arithmetic: maximum(x, 0) instead of x if x > 0 else 0",
        )  # fmt: skip

    __bool__ = __float__ = __int__ = __index__ = __array__ = _unknown
    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = _unknown
    __hash__ = object.__hash__


def relu(x: Any) -> Any:
    """Return max(x, 0), of arrays or of what is traced."""
    return _apply("relu", x)


def exp(x: Any) -> Any:
    """Return e to the power of x, of arrays or of what is traced."""
    return _apply("exp", x)


def log(x: Any) -> Any:
    """Return the natural logarithm, of arrays or of what is traced."""
    return _apply("log", x)


def sum(x: Any) -> Any:
    """Return the sum of all numbers, of shape (), of arrays or of what is traced."""
    return _apply("sum", x)


def maximum(x: Any, y: Any) -> Any:
    """Return the larger of two numbers, place by place, of arrays or of what is traced."""
    return _apply("maximum", x, y)


def transpose(x: Any) -> Any:
    """Return x with its axes in the opposite order, of arrays or of what is traced."""
    return _apply("transpose", x)


def _apply(op: str, *values: Any) -> Any:
    home = next((one for one in values if isinstance(one, Traced)), None)
    if home is None:
        return NUMPY[op](*values)
    output = home.record(home.equations, op, tuple(_operand(one, home.equations) for one in values))
    if not isinstance(output, Variable):
        raise TraceError("record did not return a variable", where=op, expected="Variable", got=repr(output))
    return Traced(output, home.equations, home.record)


def _operand(value: Any, equations: list[Equation]) -> Operand:
    if isinstance(value, Traced) and value.equations is equations:
        return value.variable
    if isinstance(value, Traced):
        raise TraceError(
            "a traced value has left the function in which it was traced", where=repr(value),
            todo="return it, or pass it as an argument: a variable outside the function does not live longer than it",
        )  # fmt: skip
    if isinstance(value, np.generic | np.ndarray) and not value.shape:
        value = value.item()
    if isinstance(value, int | float):
        return value
    raise TraceError(
        "this cannot be part of a program", expected="a traced value or a number", got=type(value).__name__,
        todo="pass an array as an argument of the traced function",
    )  # fmt: skip


def trace(function: Callable[..., Any], *shapes: Sequence[int], record: Callable[..., Variable] = record) -> Program:
    """Call a function once with a traced value for each shape, and return what it did.

    Args:
        function: Takes an array for each shape; returns one result, or a tuple or list of them.
        shapes: The shapes of its arguments.
        record: Writes an operation down; as the function of this name.

    Raises:
        TraceError: Shapes do not fit together, or the function asks for numbers or brings arrays of its own.
    """
    if not all(isinstance(shape, tuple | list) for shape in shapes):
        raise TraceError("a function is traced for shapes", expected="trace(function, (4, 3), ())", got=shapes)
    equations: list[Equation] = []
    inputs = tuple(fresh(tuple(shape)) for shape in shapes)
    results = function(*(Traced(one, equations, record) for one in inputs))
    if not isinstance(results, tuple | list):
        results = [results]
    outputs = tuple(_operand(one, equations) for one in results)
    return Program(inputs, tuple(equations), outputs)


# -- what can be done with a program


def evaluate(program: Program, *arguments: Any) -> tuple[np.ndarray, ...]:
    """Run a program on arrays.

    Args:
        program: The program.
        arguments: An array, or a number, for each of its inputs, of the input's shape.

    Raises:
        TraceError: The arguments do not have the shapes for which the function was traced, or an equation reads what
            none has made.
    """
    shapes = [one.shape for one in program.inputs]
    if [np.shape(one) for one in arguments] != shapes:
        raise TraceError(
            "these arguments are not those that the function was traced for", expected=shapes,
            got=[np.shape(one) for one in arguments], todo="trace the function for these shapes, too",
        )  # fmt: skip
    values: dict[Variable, Any] = dict(zip(program.inputs, arguments, strict=True))

    def read(one: Operand) -> Any:
        if not isinstance(one, Variable):
            return one
        if one not in values:
            raise TraceError("a variable is read before it is made", where=program, got=program.names()[one])
        return values[one]

    for equation in program.equations:
        values[equation.output] = NUMPY[equation.op](*map(read, equation.inputs))
    return tuple(np.asarray(read(one)) for one in program.outputs)


def live(program: Program) -> Program:
    """Return the program without equations that no output needs; its inputs stay, as they are its signature."""
    needed = set(program.outputs)
    kept: list[Equation] = []
    for equation in reversed(program.equations):
        if equation.output in needed:
            needed.update(equation.inputs)
            kept.append(equation)
    return Program(program.inputs, tuple(reversed(kept)), program.outputs)
