"""Lengths of axes: numbers, names of dynamic axes, and expressions of these in a normal form.

An expression is a sum of products, whose factors are names and the results of other functions, such as whole quotients.
Rules that hold for all lengths bring equal expressions to the same form, as far as they go: both x[1:] and x[:-1] have
the length max(n-1, 0), if that of x is n. Expressions that differ may still be equal, which is known at run time.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from mlhood.errors import CompilerError

# The length of an axis: a number, the name of a dynamic axis such as "batch", or an expression such as "batch+1".
Dim = int | str
Terms = Mapping[tuple[str, ...], int]  # the coefficient of each product of factors; () is the product of none

OPEN_END = 2**31 - 1  # slices that end here or later reach the end of the axis
_MAX_NAME_CHARS = 120
_MAX_LENGTH = 2**36  # far above any axis
_MAX_TERMS = 16
_MAX_DEPTH = 32
_MAX_STEPS = 128
_PLAIN = re.compile(r"[\w.]+(\([^()]*\))?")


class Length(str):
    """The length of a dynamic axis: a name, or an expression, whose text it is.

    Attributes:
        function: What computes it from the arguments, which can also be expressions again; None for a name.
        arguments: Lengths, and numbers of any type where the function has them.
        terms: It as a sum of products.
        depth: How deeply functions are nested.
    """

    function: Callable[..., Any] | None
    arguments: tuple[Any, ...]
    terms: Terms
    depth: int

    def __new__(
        cls, text: str, function: Callable[..., Any] | None = None, *arguments: Any, terms: Terms | None = None
    ) -> Length:
        """Return a length with this text, or with a hash of a long one."""
        if len(text) > _MAX_NAME_CHARS:  # some would double in length at every node
            text = f"axis_{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"
        length = super().__new__(cls, text)
        length.depth = 1 + max((each.depth for each in arguments if isinstance(each, Length)), default=0)
        if length.depth > _MAX_DEPTH:  # as a name, it is looked up in the shapes of values
            function, arguments, terms, length.depth = None, (), None, 1
        length.function, length.arguments, length.terms = function, arguments, terms or {(length,): 1}
        return length

    @classmethod
    def of(cls, axis: Dim) -> int | Length:
        """Return the length of an axis as a number or as an expression, which a name is, too."""
        return cls(axis) if isinstance(axis, str) and not isinstance(axis, Length) else axis  # type: ignore[return-value]


def fold(length: Any, leaves: Mapping[str, Any], apply: Callable[..., Any]) -> Any:
    """Return what an expression gives when its names are replaced by leaves and its functions by `apply`.

    Args:
        length: A number, a name or an expression of names.
        leaves: What stands for each name, and for expressions that are known as a whole.
        apply: Takes a function, and what its arguments give, or numbers.

    Raises:
        CompilerError: The expression has other names.
    """
    done = dict(leaves)

    def walk(part: Any) -> Any:
        if not isinstance(part, str):
            return part
        if part not in done:
            if not isinstance(part, Length) or part.function is None:
                raise CompilerError("the length of an axis is not known", expected=", ".join(leaves), got=part)
            done[part] = apply(part.function, *map(walk, part.arguments))
        return done[part]

    return walk(length)


def evaluate(length: Dim, lengths: Mapping[str, Dim]) -> Dim:
    """Return an expression with its names replaced by lengths: a number if all of these are numbers.

    Raises:
        CompilerError: The expression has other names, or divides by 0.
    """
    try:
        return fold(length, lengths, lambda function, *arguments: function(*arguments))
    except ArithmeticError as error:
        raise CompilerError("the length of an axis cannot be computed", got=f"{length}: {error}") from error


def names_in(length: Dim) -> list[str]:
    """Return the names in an expression, in order of appearance."""
    found: dict[str, None] = {}
    worklist: list[Any] = [length]
    seen: set[str] = set()
    while worklist:
        part = worklist.pop()
        if isinstance(part, str) and part not in seen:
            seen.add(part)
            if isinstance(part, Length) and part.function is not None:
                worklist += reversed(part.arguments)
            else:
                found[part] = None
    return list(found)


# -- sums and products


def add_dims(*lengths: Dim) -> Dim:
    """Return the sum of lengths: add_dims("h", 2) is "h+2", and add_dims("h+2", -2) is "h"."""
    if all(isinstance(length, int) for length in lengths):
        return sum(map(int, lengths))
    total: Counter[tuple[str, ...]] = Counter()
    for length in lengths:
        total.update(_terms(length))
    return _sum(total)


def subtract_dims(first: Dim, second: Dim) -> Dim:
    """Return the difference of two lengths."""
    return add_dims(first, product((-1, second)))


def multiply_dims(*lengths: Dim) -> Dim:
    """Return the product of lengths."""
    return product(lengths)


def product(shape: Iterable[Dim]) -> Dim:
    """Return the number of elements of a shape: product((2, "batch", 3)) is "6*batch"."""
    shape = tuple(shape)
    if all(isinstance(axis, int) for axis in shape):
        return math.prod(map(int, shape))
    result: dict[tuple[str, ...], int] = {(): 1}
    for axis in shape:
        terms = _terms(axis)
        if isinstance(axis, str) and len(result) * len(terms) > _MAX_TERMS:
            terms = {(axis,): 1}
        products: Counter[tuple[str, ...]] = Counter()
        for first, a in result.items():
            for second, b in terms.items():
                products[tuple(sorted((*first, *second)))] += a * b
        result = dict(products)
    return _sum(result)


def quotient(shape: Sequence[Dim], divisor: Sequence[Dim]) -> Dim | None:
    """Return the number of elements of a shape divided by that of another; None if it is not integral or unknown."""
    whole = product(divisor)
    terms = _terms(whole)
    if not terms:
        return None
    names, number = _leading(terms)
    left, result = product(shape), 0
    for _ in range(_MAX_TERMS):  # long division of polynomials
        if left == 0:
            return result
        factors, coefficient = _leading(_terms(left))
        rest = Counter(factors)
        rest.subtract(names)
        if coefficient % number or min(rest.values(), default=0) < 0:
            break
        part = _product(tuple(sorted(rest.elements())), coefficient // number)
        left, result = subtract_dims(left, product((part, whole))), add_dims(result, part)
    return None


def _leading(terms: Terms) -> tuple[tuple[str, ...], int]:
    """Return the product of the most factors, the last of these in alphabetical order, with its coefficient."""
    factors = max(terms, key=lambda factors: (len(factors), factors))
    return factors, terms[factors]


def _terms(length: Dim) -> Terms:
    if isinstance(length, str):
        return length.terms if isinstance(length, Length) else {(length,): 1}
    return {(): length} if length else {}


def _sum(terms: Terms) -> Dim:
    order = sorted((not factors, coefficient < 0, factors) for factors, coefficient in terms.items() if coefficient)
    terms = {factors: terms[factors] for *_, factors in order}
    parts = [_product(factors, coefficient) for factors, coefficient in terms.items()]
    if len(parts) < 2:
        return parts[0] if parts else 0
    text = "".join(str(part) if str(part).startswith("-") else f"+{part}" for part in parts).removeprefix("+")
    return Length(text, add_dims, *parts, terms=terms if len(terms) <= _MAX_TERMS else None)


def _product(factors: tuple[str, ...], coefficient: int) -> Dim:
    if not factors:
        return coefficient
    if coefficient == 1 and len(factors) == 1:
        return Length.of(factors[0])
    numbers = [] if abs(coefficient) == 1 else [str(abs(coefficient))]
    text = "*".join([*numbers, *(_in_brackets(factor) for factor in factors)])
    text = f"-{text}" if coefficient < 0 else text
    return Length(text, multiply_dims, coefficient, *factors, terms={factors: coefficient})


def _in_brackets(length: Dim) -> str:
    text = str(length)
    return text if _PLAIN.fullmatch(text) else f"({text})"


# -- quotients


def divide_dim(axis: Dim, divisor: Dim, *, up: bool = False) -> Dim:
    """Return a length divided by another, rounded down, or up."""
    if up:
        axis = add_dims(axis, divisor, -1)
    if isinstance(axis, int) and isinstance(divisor, int):
        return axis // divisor
    exact = quotient([axis], [divisor]) if divisor else None
    if exact is not None:
        return exact
    if isinstance(divisor, str) or divisor < 0:
        return _floor(axis, divisor)
    whole = _sum({factors: coefficient // divisor for factors, coefficient in _terms(axis).items()})
    rest = {factors: coefficient % divisor for factors, coefficient in _terms(axis).items() if coefficient % divisor}
    for (factor, *others), coefficient in ((factors, c) for factors, c in rest.items() if factors):
        function, inner = _applied(factor)
        is_nested = function is divide_dim and not others and coefficient == 1
        if is_nested and isinstance(inner[1], int):  # (a//b + c)//d = (a + b*c)//(b*d)
            around = product((inner[1], subtract_dims(_sum(rest), factor)))
            return add_dims(whole, divide_dim(add_dims(inner[0], around), divisor * inner[1]))
    common = math.gcd(divisor, *(coefficient for factors, coefficient in rest.items() if factors))
    rest = {factors: coefficient // common for factors, coefficient in rest.items()}
    divisor, first = divisor // common, next((rest[factors] for factors in sorted(rest) if factors), 0)
    if 2 * first > divisor:  # -a//b is written by (a+b-1)//b
        negative = add_dims(product((-1, _sum(rest))), divisor - 1)
        return subtract_dims(whole, divide_dim(negative, divisor))
    return add_dims(whole, _floor(_sum(rest), divisor) if first else _sum(rest))


def _floor(axis: Dim, divisor: Dim) -> Dim:
    if divisor == 1:
        return axis
    return Length(f"{_in_brackets(axis)}//{_in_brackets(divisor)}", divide_dim, axis, divisor)


def remainder(axis: Dim, divisor: Dim) -> Dim:
    """Return what is left of a length by a whole division, with the sign of the divisor."""
    return subtract_dims(axis, product((divisor, divide_dim(axis, divisor))))


def scale_dim(axis: Dim, scale: float) -> Dim:
    """Return a length multiplied by a factor, rounded down."""
    exact = Fraction(scale)
    if isinstance(axis, int):
        exact *= axis
        # Rounded to float32 first, as in torch and ONNX Runtime: 10 elements by the float32 below 0.7 are 7, not 6.
        return math.floor(np.float32(float(exact))) if exact < _MAX_LENGTH else math.floor(exact)
    if exact.denominator < 2**12:  # what float32 represents
        return divide_dim(product((axis, exact.numerator)), exact.denominator)
    return Length(f"floor({axis}*{scale!r})", scale_dim, axis, scale)


# -- maxima, and what is known of all lengths


def maximum(first: Dim, second: Dim) -> Dim:
    """Return the larger of two lengths."""
    if isinstance(first, int) and isinstance(second, int):
        return max(first, second)
    return add_dims(second, _positive_part(subtract_dims(first, second)))


def minimum(first: Dim, second: Dim) -> Dim:
    """Return the smaller of two lengths."""
    return subtract_dims(first, _positive_part(subtract_dims(first, second)))


def _positive_part(length: Dim) -> Dim:
    """Return max(length, 0)."""
    if isinstance(length, int):
        return max(length, 0)
    if is_at_least(length, 0):
        return length
    if is_at_least(product((-1, length)), 0):
        return 0
    terms = _terms(length)
    for (factor, *others), coefficient in ((factors, c) for factors, c in terms.items() if factors):
        function, arguments = _applied(factor)
        if function is maximum and coefficient == 1 and not others:  # max(max(a, 0) - b, 0)
            rest = subtract_dims(length, factor)
            if is_at_least(product((-1, rest)), 0):
                return _positive_part(add_dims(arguments[0], rest))
    first = terms[min([factors for factors in terms if factors])]
    if first < 0:  # max(-a, 0) = max(a, 0) - a
        opposite = product((-1, length))
        return subtract_dims(_positive_part(opposite), opposite)
    common = math.gcd(*terms.values())
    part = _sum({factors: coefficient // common for factors, coefficient in terms.items()})
    return product((common, Length(f"max({part}, 0)", maximum, part, 0)))


@lru_cache(4096)
def is_at_least(length: Dim, limit: int) -> bool:
    """Return whether an expression is at least this number whatever the lengths are, as far as simple rules show it."""
    if isinstance(length, int):
        return length >= limit
    return any(_lower_bound(length, relax) > limit - 1 for relax in (True, False))


def _lower_bound(length: Dim, relax: bool) -> Fraction | float:
    """Return a number that an expression is not below, where names and maxima are 0 or more.

    Args:
        length: The expression.
        relax: Whether quotients and maxima that are 0 or more are replaced by what they are not below, too.
    """
    pending = [(list(factors), Fraction(coefficient)) for factors, coefficient in _terms(length).items()]
    bounds: Counter[tuple[str, ...]] = Counter()

    def replace(rest: list[str], coefficient: Fraction, other: Dim) -> None:
        pending.extend(([*rest, *factors], coefficient * c) for factors, c in _terms(other).items())

    for _ in range(_MAX_STEPS):
        if not pending:
            break
        factors, coefficient = pending.pop()
        for i, factor in enumerate(factors):
            rest, (function, arguments) = factors[:i] + factors[i + 1 :], _applied(factor)
            if function is maximum and coefficient < 0:
                upper = {names: c for names, c in _terms(arguments[0]).items() if c > 0}
                replace(rest, coefficient, _sum(upper))
                break
            if function is maximum and relax:
                replace(rest, coefficient, arguments[0])
                break
            if function is divide_dim:
                dividend, divisor = arguments
                if coefficient > 0 and not relax and is_at_least(dividend, 0) and is_at_least(divisor, 0):
                    continue
                if divisor in rest:
                    rest.remove(divisor)
                elif isinstance(divisor, int) and divisor > 0:
                    coefficient /= divisor
                else:
                    return -math.inf
                exact = dividend if coefficient < 0 else add_dims(dividend, product((-1, divisor)), 1)
                replace(rest, coefficient, exact)
                break
            if function not in (None, maximum, broadcast_dims, scale_dim):
                return -math.inf
        else:
            bounds[tuple(sorted(factors))] += coefficient  # type: ignore[assignment]
    constant = bounds.pop((), 0)
    return -math.inf if pending or min(bounds.values(), default=0) < 0 else constant


def _applied(length: Dim) -> tuple[Callable[..., Any] | None, tuple[Any, ...]]:
    """Return the function that gives a length, and its arguments; None for a number or a name."""
    return (length.function, length.arguments) if isinstance(length, Length) else (None, ())


# -- slices, ranges and broadcasting


def slice_length(size: Dim, start: Dim, stop: Dim, step: int) -> Dim:
    """Return the length of a slice of an axis, by the rules of ONNX's Slice."""
    first, last = maximum(from_front(size, start), 0), from_front(size, stop)
    if step > 0:
        span = subtract_dims(minimum(last, size), first)
    else:
        span = subtract_dims(minimum(first, add_dims(size, -1)), maximum(last, -1))
    return divide_dim(_positive_part(span), abs(step), up=True)


def from_front(size: Dim, end: Dim) -> Dim:
    """Return an end of a slice, which counts from the end of the axis if it is negative, counted from the front."""
    if isinstance(end, int) and abs(end) >= OPEN_END:
        return size if end > 0 else -1
    if is_at_least(end, 0):
        return end
    if is_at_least(subtract_dims(-1, end), 0):
        return add_dims(size, end)
    return Length(f"from_front({size}, {end})", from_front, size, end)


def range_length(start: Dim, limit: Dim, delta: Dim) -> Dim:
    """Return the length of a range of integers."""
    if isinstance(delta, str):
        return Length(f"range({start}, {limit}, {delta})", range_length, start, limit, delta)
    first, last = (start, limit) if delta > 0 else (limit, start)
    return _positive_part(divide_dim(subtract_dims(last, first), abs(delta), up=True))


def broadcast_dims(*lengths: Dim) -> Dim:
    """Return the length that axes are broadcast to: their common length, or that of those that are not 1.

    A dynamic axis beside a number becomes the number: at run time it must have that length, or 1.

    Raises:
        CompilerError: Two numbers differ, and neither is 1.
    """
    numbers = {length for length in lengths if isinstance(length, int) and length != 1}
    if len(numbers) > 1:
        raise CompilerError("two lengths cannot be broadcast", expected="equal ones, or 1", got=sorted(numbers))
    if numbers:
        return numbers.pop()
    parts: dict[str, None] = {}
    for length in lengths:
        if isinstance(length, str):
            function, arguments = _applied(length)
            parts |= dict.fromkeys(arguments if function is broadcast_dims else (length,))
    kept = [part for part in parts if not any(_is_limited(part, other) for other in parts)]
    if len(kept) < 2:
        return kept[0] if kept else 1
    return Length(f"broadcast({', '.join(sorted(kept))})", broadcast_dims, *sorted(kept))


def _is_limited(length: str, other: str) -> bool:
    """Return whether a length is the smaller of another and a number above 0, such as that of table[:n]."""
    excess = subtract_dims(other, length)
    function, arguments = _applied(excess)
    if function is not maximum:
        return False
    limit = subtract_dims(other, arguments[0])
    return isinstance(limit, int) and limit > 0


def may_be_equal(first: Dim, second: Dim) -> bool:
    """Return whether two lengths are equal, or one is dynamic: whether they are is known at run time."""
    return first == second or isinstance(first, str) or isinstance(second, str)
