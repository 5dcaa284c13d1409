"""Reverse mode: a tape records what a function does, and is then read backwards.

Source: A. Griewank, A. Walther, "Evaluating Derivatives", SIAM 2008, chapter 3.2; A. Baydin et al., "Automatic
Differentiation in Machine Learning: a Survey", JMLR 18, 2018, section 3.2.

>>> tape = Tape()
>>> x, w, bias = (tape.value(array) for array in (image, weight, offset))
>>> loss = cross_entropy(dense(relu(x), w, bias), labels)
>>> backward(tape)[w.number]                    # of w's shape: how the loss changes with each of its numbers
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mlhood.errors import AutodiffError
from mlhood.jaxlab.autodiff.operators import NUMPY, Value, constant, plain
from mlhood.jaxlab.autodiff.rules import RULES, Rule
from mlhood.jaxlab.autodiff.trees import mapped


@dataclass(frozen=True)
class Entry:
    """One operation that was done.

    Args:
        op: A name of `RULES`.
        inputs: Numbers of the values that it read.
        output: Number of the value that it made.
        attributes: What is no array, by name: strides, shapes.
    """

    op: str
    inputs: tuple[int, ...]
    output: int
    attributes: dict[str, Any]


@dataclass
class Tape:
    """All values, in the order in which they came, and the operations that made them.

    Args:
        values: The arrays; a value's number is its place.
        entries: The operations. Each reads values that come before the one that it makes.
        names: What some values are called, by number.
    """

    values: list[np.ndarray] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)

    def value(self, array: Any, name: str = "") -> Recorded:
        """Put an array on the tape, and return what stands for it in the function.

        Raises:
            AutodiffError: It belongs to another derivative.
        """
        self.values.append(np.asarray(plain(array)))
        number = len(self.values) - 1
        if name:
            self.names[number] = name
        return Recorded(self, number)

    def tree(self, arrays: Any) -> Any:
        """Put nested dictionaries, lists and tuples of arrays on the tape, each named after its place."""
        return mapped(lambda name, leaf: self.value(leaf, name), arrays)

    def __repr__(self) -> str:
        """Say it line by line, as a program."""
        lines = [f"{one.output} = {one.op} {' '.join(map(str, one.inputs))}" for one in self.entries]
        return "\n".join([f"Tape of {len(self.values)} values:", *lines])


class Recorded(Value):
    """A value of a tape. Operations on it are done at once, and written down."""

    def __init__(self, tape: Tape, number: int) -> None:
        self.tape = tape
        self.number = number

    @property
    def array(self) -> np.ndarray:
        """The numbers."""
        return self.tape.values[self.number]

    def apply(self, op: str, inputs: tuple[Any, ...], attributes: dict[str, Any]) -> Recorded:
        """Do an operation, and write it down."""
        numbers = tuple(self._number(one) for one in inputs)
        output = self.tape.value(NUMPY[op](*(self.tape.values[i] for i in numbers), **attributes))
        self.tape.entries.append(Entry(op, numbers, output.number, attributes))
        return output

    def _number(self, one: Any) -> int:
        if isinstance(one, Recorded) and one.tape is self.tape:
            return one.number
        return self.tape.value(constant(one, self.dtype)).number


def backward(tape: Tape, rules: Mapping[str, Rule] = RULES, of: int | None = None) -> dict[int, np.ndarray]:
    """Return the gradient of one value by all those that it depends on.

    The tape is read from its end. When an operation's turn comes, all that read its result have had theirs, so the
    gradient by the result is complete; the rule makes of it gradients by the inputs. What several operations have read
    gets the sum of theirs.

    Args:
        tape: What was done.
        rules: For each operation rule(g, y, *inputs, **attributes) -> a gradient, or None, for each input.
        of: Number of the value to differentiate, one number; the tape's last if left out.

    Returns:
        Gradients by numbers of values, each of its value's shape; values that do not matter are left out. They may
        share memory: write into none.

    Raises:
        AutodiffError: The value is not one number, or there is no rule for an operation.
    """
    last = len(tape.values) - 1 if of is None else of
    if not tape.values or tape.values[last].size != 1:
        raise AutodiffError(
            "only one number has a gradient", expected="a tape that ends in a value of shape ()",
            got=list(tape.values[last].shape) if tape.values else "an empty tape", todo="take its sum or its mean",
        )  # fmt: skip
    gradients = {last: np.ones_like(tape.values[last])}
    for entry in reversed(tape.entries):
        if entry.output in gradients:
            for number, part in zip(entry.inputs, _parts(tape, entry, rules, gradients[entry.output]), strict=True):
                if part is not None:
                    gradients[number] = gradients[number] + part if number in gradients else part
    return gradients


def _parts(tape: Tape, entry: Entry, rules: Mapping[str, Rule], g: np.ndarray) -> Sequence[np.ndarray | None]:
    if entry.op not in rules:
        raise AutodiffError("there is no rule for this operation", where=entry.op, expected=", ".join(rules))
    inputs = [tape.values[number] for number in entry.inputs]
    parts = rules[entry.op](g, tape.values[entry.output], *inputs, **entry.attributes)
    if not isinstance(parts, tuple | list) or len(parts) != len(inputs):
        raise AutodiffError("a rule returns a tuple with a gradient, or None, for each input", where=entry.op,
                            expected=f"{len(inputs)} gradients", got=parts)  # fmt: skip
    return parts


def value_and_grad(
    function: Callable[..., Any], argnums: int | tuple[int, ...] = 0, rules: Mapping[str, Rule] = RULES
) -> Callable[..., tuple[np.ndarray, Any]]:
    """Return a function that gives the value and the gradient; arguments as `grad`."""
    chosen = (argnums,) if isinstance(argnums, int) else argnums

    def run(*arguments: Any) -> tuple[np.ndarray, Any]:
        tape = Tape()
        given = list(arguments)
        for i in chosen:
            given[i] = tape.tree(arguments[i])
        result = function(*given)
        if not isinstance(result, Recorded) or result.tape is not tape:
            raise AutodiffError(
                "the function's result does not depend on what it is differentiated by", got=type(result).__name__,
                todo="compute with the functions of mlhood.jaxlab.autodiff: NumPy's are not recorded",
            )  # fmt: skip
        found = backward(tape, rules, result.number)
        parts = [mapped(lambda _, one: found.get(one.number, np.zeros_like(one.array)), given[i]) for i in chosen]
        return result.array, parts[0] if isinstance(argnums, int) else tuple(parts)

    return run


def grad(
    function: Callable[..., Any], argnums: int | tuple[int, ...] = 0, rules: Mapping[str, Rule] = RULES
) -> Callable[..., Any]:
    """Return a function that gives the gradient, as `jax.grad`.

    Args:
        function: Computes one number with the operators of this package.
        argnums: By which argument, or arguments; each an array, or nested dictionaries, lists and tuples of arrays.
        rules: As of `backward`.

    Returns:
        A function of the same arguments; it gives what the chosen argument looks like, or a tuple of those.
    """
    both = value_and_grad(function, argnums, rules)
    return lambda *arguments: both(*arguments)[1]
