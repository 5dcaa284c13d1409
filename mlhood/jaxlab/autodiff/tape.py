"""Reverse mode: a tape records the operations of a function, and is then traversed backwards.

Source: A. Griewank, A. Walther, "Evaluating Derivatives", SIAM 2008, chapter 3.2; A. Baydin et al., "Automatic
Differentiation in Machine Learning: a Survey", JMLR 18, 2018, section 3.2.

>>> tape = Tape()
>>> x, w, bias = (tape.value(array) for array in (image, weight, offset))
>>> loss = cross_entropy(dense(relu(x), w, bias), labels)
>>> backward(tape)[w.number]                    # of w's shape: the derivative with respect to each of its elements
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mlhood.errors import AutodiffError
from mlhood.jaxlab.autodiff.operators import NUMPY, TapeValue
from mlhood.jaxlab.autodiff.rules import RULES, Rule


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
        """Append an array to the tape, and return its value."""
        self.values.append(np.asarray(array))
        number = len(self.values) - 1
        if name:
            self.names[number] = name
        return TapeValue(self, number)

    def tree(self, arrays: Any, path: tuple[str, ...] = ()) -> Any:
        """Append nested dictionaries, lists and tuples of arrays, each named by its path: "layer1.0.conv1.weight"."""
        if isinstance(arrays, dict):
            return {key: self.tree(each, (*path, str(key))) for key, each in arrays.items()}
        if isinstance(arrays, list | tuple):
            return type(arrays)(self.tree(each, (*path, str(i))) for i, each in enumerate(arrays))
        return self.value(arrays, ".".join(path))

    def record(self, op: str, inputs: tuple[Any, ...], attributes: dict[str, Any]) -> TapeValue:
        """Execute an operation, and append its result and an entry; arguments as of `operators.apply`."""
        dtype = next(operand.dtype for operand in inputs if isinstance(operand, TapeValue))
        numbers = tuple(self._number(operand, dtype) for operand in inputs)
        output = self.value(NUMPY[op](*(self.values[i] for i in numbers), **attributes))
        self.entries.append(Entry(op, numbers, output.number, attributes))
        return output

    def _number(self, operand: Any, dtype: np.dtype) -> int:
        """Return the number of an operand; a Python number becomes a constant of `dtype`, so that float32 stays."""
        if not isinstance(operand, TapeValue):
            return self.value(np.asarray(operand, dtype if isinstance(operand, int | float) else None)).number
        if operand.tape is not self:
            raise AutodiffError("values of different tapes cannot be combined", where=repr(operand))
        return operand.number

    def __repr__(self) -> str:
        """Return one line per operation, like a program."""
        lines = [f"{entry.output} = {entry.op} {' '.join(map(str, entry.inputs))}" for entry in self.entries]
        return "\n".join([f"Tape of {len(self.values)} values:", *lines])


def backward(tape: Tape, rules: Mapping[str, Rule] = RULES) -> dict[int, np.ndarray]:
    """Return the gradients of the last value with respect to all values that it depends on.

    The tape is traversed backwards. When an operation is reached, all operations that read its result have been
    processed, so the gradient with respect to the result is complete; the rule maps it to gradients with respect to the
    inputs. Gradients of a value that several operations read are accumulated.

    Args:
        tape: The recorded function.
        rules: A VJP rule for each operation: rule(g, y, *inputs, **attributes) -> a gradient, or None, for each input.

    Returns:
        Gradients by the values' numbers, each of its value's shape, only for values that the last one depends on. They
        may share memory: do not write into them.

    Raises:
        AutodiffError: The last value is not a scalar, or an operation has no rule.
    """
    last = len(tape.values) - 1
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
