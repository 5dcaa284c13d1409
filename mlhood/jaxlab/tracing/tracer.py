"""A tracer in a page: run a function once on values with a shape but no data, and record what it does.

This is the idea of a jaxpr. The function runs as ordinary Python; its loops and branches are gone when it returns. What
remains is a straight list of equations, which can be printed, drawn, simplified and evaluated on arrays. A function
whose control flow depends on data cannot be traced. Unlike in JAX, a value has no dtype and an equation no parameters:
`sum` is over all axes.

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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mlhood.errors import TraceError

if TYPE_CHECKING:
    from mlhood.graph_drawing import Drawing

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Variable:
    """An abstract value: its shape is known, its data are not.

    Args:
        number: Identifies the variable; `fresh` counts up.
        shape: The shape, () for a scalar.
    """

    number: int
    shape: Shape


Operand = Variable | float


@dataclass(frozen=True)
class Equation:
    """One operation.

    Args:
        op: A key of `SHAPES` and `NUMPY`.
        inputs: The operands: variables, and Python numbers as literals.
        output: The variable that it defines.
    """

    op: str
    inputs: tuple[Operand, ...]
    output: Variable


@dataclass(frozen=True, repr=False)
class Program:
    """A traced function: each equation reads the inputs and the outputs of earlier equations."""

    inputs: tuple[Variable, ...]
    equations: tuple[Equation, ...]
    outputs: tuple[Operand, ...]

    def names(self) -> dict[Variable, str]:
        """Return a name for each variable in the order of definition: a to z, then aa, ab and so on.

        A variable that is used but never defined, which is an error, is named by a question mark and its number.
        """
        defined = dict.fromkeys([*self.inputs, *(equation.output for equation in self.equations)])
        used = [*(operand for equation in self.equations for operand in equation.inputs), *self.outputs]
        undefined = {v: f"?{v.number}" for v in used if isinstance(v, Variable) and v not in defined}
        letters = (itertools.product("abcdefghijklmnopqrstuvwxyz", repeat=length) for length in itertools.count(1))
        return dict(zip(defined, map("".join, itertools.chain.from_iterable(letters)), strict=False)) | undefined

    def __repr__(self) -> str:
        names = self.names()

        def use(operand: Operand) -> str:
            return names[operand] if isinstance(operand, Variable) else repr(operand)

        def binder(variable: Variable) -> str:
            return f"{names[variable]}:[{','.join(map(str, variable.shape))}]"

        lines = [f"{binder(eqn.output)} = {eqn.op} {' '.join(map(use, eqn.inputs))}" for eqn in self.equations]
        body = "\n  let " + "\n      ".join(lines) if lines else ""
        head = " ".join(["{ lambda", *map(binder, self.inputs), "."])
        return f"{head}{body}\n  in ({', '.join(map(use, self.outputs))}) }}"

    def draw(self) -> Drawing:
        """Draw the program from top to bottom; a notebook displays the drawing, and `save(path)` writes it."""
        from mlhood.jaxlab.tracing.program_figures import program_graph

        return program_graph(self)


# -- the rules: shapes, and values in NumPy


def _broadcast(*shapes: Shape) -> Shape:
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError as error:
        raise TraceError(
            "shapes cannot be broadcast together",
            expected="equal sizes, or 1, aligned at the last axis",
            got=" and ".join(map(str, map(list, shapes))),
        ) from error


def _matmul(a: Shape, b: Shape) -> Shape:
    if not a or not b or a[-1] != b[-2 if len(b) > 1 else 0]:
        raise TraceError("invalid shapes for a matrix product", expected="[M, K] and [K, N]", got=f"{a} and {b}")
    return (*_broadcast(a[:-2], b[:-2]), *a[-2:-1], *(b[-1:] if len(b) > 1 else ()))


SHAPES: dict[str, Callable[..., Shape]] = {
    **dict.fromkeys(("add", "sub", "mul", "div", "pow", "maximum"), _broadcast),
    **dict.fromkeys(("neg", "relu", "exp", "log"), lambda shape: shape),
    "matmul": _matmul,
    "sum": lambda shape: (),
    "transpose": lambda shape: shape[::-1],
}
"""The shape rule of each operation: from the shapes of the operands to that of the result."""

NUMPY: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "pow": np.power,
    "maximum": np.maximum,
    "neg": np.negative,
    "relu": lambda x: np.maximum(x, 0),
    "exp": np.exp,
    "log": np.log,
    "matmul": np.matmul,
    "sum": np.sum,
    "transpose": np.transpose,
}
"""How NumPy computes each operation."""

_numbers = itertools.count()


def fresh(shape: Shape) -> Variable:
    """Return a new variable."""
    return Variable(next(_numbers), tuple(shape))


def shape_of(operand: Operand) -> Shape:
    """Return a variable's shape; a number has shape ()."""
    return operand.shape if isinstance(operand, Variable) else ()


# -- the tracer


def record(equations: list[Equation], op: str, operands: Sequence[Operand]) -> Variable:
    """Append an operation to the equations, and return the variable that it defines.

    Args:
        equations: The equations so far; modified in place.
        op: A key of `SHAPES`.
        operands: The operands.

    Raises:
        TraceError: The operands' shapes do not match.
    """
    output = fresh(SHAPES[op](*map(shape_of, operands)))
    equations.append(Equation(op, tuple(operands), output))
    return output


def _method(op: str) -> Callable[..., Any]:
    return lambda *values: _apply(op, *values)


def _operator(op: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return the methods for `self op other` and for `other op self`."""
    return _method(op), lambda self, other: _apply(op, other, self)


class Tracer:
    """Stands in for an array while a function is traced: records the operations that are applied to it.

    Args:
        variable: The abstract value.
        equations: The equations recorded so far.
        record: Appends an operation; has the signature of the function `record`.
    """

    __array_ufunc__ = None  # makes NumPy defer `array + tracer` to us

    def __init__(self, variable: Variable, equations: list[Equation], record: Callable[..., Variable]) -> None:
        self.variable = variable
        self.equations = equations
        self.record = record

    def __repr__(self) -> str:
        return f"Tracer({list(self.shape)})"

    @property
    def shape(self) -> Shape:
        """The shape: known while tracing, so control flow may depend on it."""
        return self.variable.shape

    @property
    def T(self) -> Any:  # noqa: N802 (NumPy's name)
        """The transpose: all axes reversed."""
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

    def _concretization_error(self, *_: Any) -> Any:
        raise TraceError(
            "a tracer has no concrete value",
            where=repr(self),
            expected="operations that can be recorded",
            got="a comparison, `if`, `while`, or a conversion to a number or an array",
            todo="branch on the shape, or use arithmetic: maximum(x, 0) instead of x if x > 0 else 0",
        )

    __bool__ = __float__ = __int__ = __index__ = __array__ = _concretization_error
    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = _concretization_error
    __hash__ = object.__hash__


def relu(x: Any) -> Any:
    """Return max(x, 0) of an array or a tracer."""
    return _apply("relu", x)


def exp(x: Any) -> Any:
    """Return e to the power of x, for an array or a tracer."""
    return _apply("exp", x)


def log(x: Any) -> Any:
    """Return the natural logarithm of an array or a tracer."""
    return _apply("log", x)


def sum(x: Any) -> Any:
    """Return the sum over all axes, of shape (), of an array or a tracer."""
    return _apply("sum", x)


def maximum(x: Any, y: Any) -> Any:
    """Return the elementwise maximum of two arrays or tracers."""
    return _apply("maximum", x, y)


def transpose(x: Any) -> Any:
    """Return an array or a tracer with its axes reversed."""
    return _apply("transpose", x)


def _apply(op: str, *values: Any) -> Any:
    tracer = next((value for value in values if isinstance(value, Tracer)), None)
    if tracer is None:
        return NUMPY[op](*values)
    output = tracer.record(tracer.equations, op, tuple(_operand(value, tracer.equations) for value in values))
    if not isinstance(output, Variable):
        raise TraceError("record did not return a variable", where=op, expected="Variable", got=repr(output))
    return Tracer(output, tracer.equations, tracer.record)


def _operand(value: Any, equations: list[Equation]) -> Operand:
    if isinstance(value, Tracer) and value.equations is equations:
        return value.variable
    if isinstance(value, Tracer):
        todo = "return it, or pass it as an argument: it is valid only while its function is traced"
        raise TraceError("a tracer has leaked out of the function that was traced", where=repr(value), todo=todo)
    if isinstance(value, np.generic | np.ndarray) and not value.shape:
        value = value.item()
    if isinstance(value, int | float):
        return value
    todo = "pass an array as an argument of the traced function"
    raise TraceError("invalid operand", expected="a tracer or a number", got=type(value).__name__, todo=todo)


def trace(function: Callable[..., Any], *shapes: Sequence[int], record: Callable[..., Variable] = record) -> Program:
    """Call a function once with a tracer for each shape, and return the program that it recorded.

    Args:
        function: Takes an array for each shape; returns one result, or a tuple or list of them.
        shapes: The shapes of its arguments.
        record: Appends an operation; has the signature of the function `record`.

    Raises:
        TraceError: Shapes do not match, the function needs concrete values, or it uses arrays that are not arguments.
    """
    if not all(isinstance(shape, tuple | list) for shape in shapes):
        raise TraceError("arguments after the function are shapes", expected="trace(function, (4, 3), ())", got=shapes)
    equations: list[Equation] = []
    inputs = tuple(fresh(tuple(shape)) for shape in shapes)
    results = function(*(Tracer(variable, equations, record) for variable in inputs))
    if not isinstance(results, tuple | list):
        results = [results]
    outputs = tuple(_operand(result, equations) for result in results)
    return Program(inputs, tuple(equations), outputs)


# -- evaluation and dead code elimination


def evaluate(program: Program, *arguments: Any) -> tuple[np.ndarray, ...]:
    """Run a program on arrays.

    Args:
        program: The program.
        arguments: An array, or a number, for each of its inputs, of the input's shape.

    Raises:
        TraceError: The arguments' shapes differ from those of the inputs, or a variable is used before its definition.
    """
    expected, got = [variable.shape for variable in program.inputs], [np.shape(array) for array in arguments]
    if got != expected:
        what = "the arguments' shapes differ from those that the function was traced for"
        raise TraceError(what, expected=expected, got=got, todo="trace the function again, for these shapes")
    values: dict[Variable, Any] = dict(zip(program.inputs, arguments, strict=True))

    def read(operand: Operand) -> Any:
        if not isinstance(operand, Variable):
            return operand
        if operand not in values:
            raise TraceError("a variable is used before its definition", where=program, got=program.names()[operand])
        return values[operand]

    for equation in program.equations:
        values[equation.output] = NUMPY[equation.op](*map(read, equation.inputs))
    return tuple(np.asarray(read(output)) for output in program.outputs)


def live(program: Program) -> Program:
    """Return the program without dead code: equations that no output depends on; the inputs, its signature, stay."""
    needed = set(program.outputs)
    equations: list[Equation] = []
    for equation in reversed(program.equations):
        if equation.output in needed:
            needed.update(equation.inputs)
            equations.append(equation)
    return Program(program.inputs, tuple(reversed(equations)), program.outputs)
