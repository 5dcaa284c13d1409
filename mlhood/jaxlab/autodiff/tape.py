"""Reverse mode: a tape records the operations of a function, and is then traversed backwards.

Source: A. Griewank, A. Walther, "Evaluating Derivatives", SIAM 2008, chapter 3.2; A. Baydin et al., "Automatic
Differentiation in Machine Learning: a Survey", JMLR 18, 2018, section 3.2.

>>> tape = Tape()
>>> x, w, bias = (tape.value(array) for array in (image, weight, offset))
>>> loss = cross_entropy(dense(relu(x), w, bias), labels)
>>> backward(tape)[w.number]                    # of w's shape: the derivative with respect to each of its elements
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mlhood.errors import AutodiffError
from mlhood.jaxlab.autodiff.operators import NUMPY, TracedValue, constant, reject_value
from mlhood.jaxlab.autodiff.rules import RULES, Rule
from mlhood.jaxlab.autodiff.trees import map_with_path


@dataclass(frozen=True)
class Entry:
    """One recorded operation.

    Args:
        op: A key of `RULES`.
        inputs: Numbers of the values that it read.
        output: Number of the value that it computed.
        attributes: Its static arguments by name: strides, shapes.
    """

    op: str
    inputs: tuple[int, ...]
    output: int
    attributes: dict[str, Any]


@dataclass
class Tape:
    """All values and all operations in the order of execution.

    Args:
        values: The arrays; a value's number is its index.
        entries: The operations. Each reads values that precede its result.
        names: Names of some values, by number.
    """

    values: list[np.ndarray] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)

    def value(self, array: Any, name: str = "") -> TapeValue:
        """Append an array to the tape, and return its value.

        Raises:
            AutodiffError: It is a value of another derivative.
        """
        self.values.append(np.asarray(reject_value(array)))
        number = len(self.values) - 1
        if name:
            self.names[number] = name
        return TapeValue(self, number)

    def tree(self, arrays: Any) -> Any:
        """Append nested dictionaries, lists and tuples of arrays, each named by its path."""
        return map_with_path(lambda path, leaf: self.value(leaf, path), arrays)

    def __repr__(self) -> str:
        """Return one line per operation, like a program."""
        lines = [f"{entry.output} = {entry.op} {' '.join(map(str, entry.inputs))}" for entry in self.entries]
        return "\n".join([f"Tape of {len(self.values)} values:", *lines])


class TapeValue(TracedValue):
    """A value on a tape. Operations on it are executed immediately and recorded."""

    def __init__(self, tape: Tape, number: int) -> None:
        self.tape = tape
        self.number = number

    @property
    def array(self) -> np.ndarray:
        """The data."""
        return self.tape.values[self.number]

    def apply(self, op: str, inputs: tuple[Any, ...], attributes: dict[str, Any]) -> TapeValue:
        """Execute an operation and record it."""
        numbers = tuple(self._number(operand) for operand in inputs)
        output = self.tape.value(NUMPY[op](*(self.tape.values[i] for i in numbers), **attributes))
        self.tape.entries.append(Entry(op, numbers, output.number, attributes))
        return output

    def _number(self, operand: Any) -> int:
        if isinstance(operand, TapeValue) and operand.tape is self.tape:
            return operand.number
        return self.tape.value(constant(operand, self.dtype)).number


def backward(tape: Tape, rules: Mapping[str, Rule] = RULES, output: int | None = None) -> dict[int, np.ndarray]:
    """Return the gradients of one value with respect to all values that it depends on.

    The tape is traversed backwards. When an operation is reached, all operations that read its result have been
    processed, so the gradient with respect to the result is complete; the rule maps it to gradients with respect to the
    inputs. Gradients of a value that several operations read are accumulated.

    Args:
        tape: The recorded function.
        rules: A VJP rule for each operation: rule(g, y, *inputs, **attributes) -> a gradient, or None, for each input.
        output: Number of the value to differentiate, a scalar; the tape's last if omitted.

    Returns:
        Gradients by the values' numbers, each of its value's shape, only for values that the output depends on. They
        may share memory: do not write into them.

    Raises:
        AutodiffError: The value is not a scalar, or an operation has no rule.
    """
    last = len(tape.values) - 1 if output is None else output
    if not tape.values or tape.values[last].size != 1:
        raise AutodiffError(
            "gradients are defined only for scalars",
            expected="a tape that ends in a value of shape ()",
            got=list(tape.values[last].shape) if tape.values else "an empty tape",
            todo="take the sum or the mean",
        )
    gradients = {last: np.ones_like(tape.values[last])}
    for entry in reversed(tape.entries):
        if entry.output in gradients:
            parts = _input_gradients(tape, entry, rules, gradients[entry.output])
            for number, part in zip(entry.inputs, parts, strict=True):
                if part is not None:
                    gradients[number] = gradients[number] + part if number in gradients else part
    return gradients


def _input_gradients(tape: Tape, entry: Entry, rules: Mapping[str, Rule], g: np.ndarray) -> Sequence[np.ndarray | None]:
    if entry.op not in rules:
        raise AutodiffError("no differentiation rule for this operation", where=entry.op, expected=", ".join(rules))
    inputs = [tape.values[number] for number in entry.inputs]
    parts = rules[entry.op](g, tape.values[entry.output], *inputs, **entry.attributes)
    if not isinstance(parts, tuple | list) or len(parts) != len(inputs):
        what = "a rule returns a tuple with a gradient, or None, for each input"
        raise AutodiffError(what, where=entry.op, expected=f"{len(inputs)} gradients", got=parts)
    return parts


def value_and_grad(
    function: Callable[..., Any], argnums: int | tuple[int, ...] = 0, rules: Mapping[str, Rule] = RULES
) -> Callable[..., tuple[np.ndarray, Any]]:
    """Return a function that returns the value and the gradient; arguments as for `grad`."""
    positions = (argnums,) if isinstance(argnums, int) else argnums

    def run(*arguments: Any) -> tuple[np.ndarray, Any]:
        tape = Tape()
        traced = list(arguments)
        for i in positions:
            traced[i] = tape.tree(arguments[i])
        result = function(*traced)
        if not isinstance(result, TapeValue) or result.tape is not tape:
            raise AutodiffError(
                "the function's result does not depend on the arguments it is differentiated with respect to",
                got=type(result).__name__,
                todo="use the operators of mlhood.jaxlab.autodiff: NumPy's are not recorded",
            )
        gradients = backward(tape, rules, result.number)

        def gradient(path: str, value: TapeValue) -> np.ndarray:
            return gradients.get(value.number, np.zeros_like(value.array))

        parts = [map_with_path(gradient, traced[i]) for i in positions]
        return result.array, parts[0] if isinstance(argnums, int) else tuple(parts)

    return run


def grad(
    function: Callable[..., Any], argnums: int | tuple[int, ...] = 0, rules: Mapping[str, Rule] = RULES
) -> Callable[..., Any]:
    """Return a function that returns the gradient, like `jax.grad`.

    Args:
        function: Returns a scalar, computed with the operators of this package.
        argnums: The argument, or arguments, to differentiate with respect to; each an array, or nested dictionaries,
            lists and tuples of arrays.
        rules: As for `backward`.

    Returns:
        A function of the same arguments, which returns a tree like the chosen argument, or a tuple of those.
    """
    both = value_and_grad(function, argnums, rules)
    return lambda *arguments: both(*arguments)[1]
