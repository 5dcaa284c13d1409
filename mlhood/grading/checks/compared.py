"""Checks that are data: what a function of the notebook returns is compared with what the course's solution returns.

A check of this kind says which function is called, draws its arguments, and says what of the result counts and what to
tell about common mistakes. Calling, comparing, and wording a failure with its input are done here, alike for all tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission, check_rules
from mlhood.grading.checks.task import Check, points
from mlhood.grading.variants.templates import render

Arguments = tuple[Any, ...]  # the last of which may be `Keywords`
Cases = Callable[..., Iterable[Arguments]]
NOTHING_RIGHT = "nothing that `{}` returns is right in simpler cases"


class Keywords(dict[str, Any]):
    """The keyword arguments of a call."""


@dataclass(frozen=True)
class SolutionComparison:
    """A comparison of a function of the notebook with that of the course's solution.

    Args:
        function: Its name.
        cases: Draws the arguments of each call for a submission; it takes the check's arguments, too.
        hint: How to go on; a template, where it depends on the variant, as are the hints of mistakes.
        key: Compare what a dictionary has under this key, or a tuple at this index. It may be a function of the values
            of the parameters. Empty to compare all of the result.
        probe: A function of ours, `module:name`, that calls a function with the arguments and returns what is compared:
            it gets the notebook's function in the student's process, and the solution here. If it returns a dictionary
            with `broken`, that is the rule that the call has broken (see `check_rules`).
        given: Returns the arguments in words; by default the call as it could be written.
        call: Calls the function with the submission and the arguments, where its name is not all that it takes.
        compare: Fails unless the first of two results is as the second; by default as `_expect` says.
        view: Compare what this makes of a result, such as `math.isinf`.
        mistakes: By the hint, the value that a common mistake leads to, as a function of the right value and the
            arguments. Where the hint is empty, it is no mistake in this variant.
        own: Returns what is as good as the solution's result, as it follows from other results of the submission, so
            that an error in those costs their points only; None if there is no such value. It gets the submission, the
            result, and the arguments.
        parts: Of a result that is a tuple, the elements that are compared, if it has them, and what they are.
        presupposes: Checks by what they are about: an element of the result, by its index in a tuple or its place in a
            dictionary, or the first argument, if that is a text. Where one fails, that is not compared, so that an
            error costs the points of one check.
        typed: Whether arrays have to be of the solution's type; integers may have more bits if not.
        rtol: Relative tolerance of arrays of floating-point numbers; at least 4e-3 in half precision.
        atol: Absolute tolerance.
    """

    function: str
    cases: Cases
    hint: str
    key: Hashable | Callable[[Any], Hashable] = ""
    probe: str = ""
    given: Callable[..., str] | None = None
    call: Callable[..., Any] | None = None
    compare: Callable[[Any, Any, str], None] | None = None
    view: Callable[[Any], Any] | None = None
    mistakes: Mapping[str, Callable[..., Any]] = field(default_factory=dict, hash=False)
    own: Callable[..., Any] | None = None
    parts: Mapping[int, str] = field(default_factory=dict, hash=False)
    presupposes: Mapping[int | str, Check] = field(default_factory=dict, hash=False)
    typed: bool = False
    rtol: float = 1e-4
    atol: float = 1e-5

    def __call__(self, submission: Submission, *chosen: Any) -> None:
        """Compare the results of all cases.

        Raises:
            CheckFailed: A result differs; or they follow from other results, and are the same for all arguments.
        """
        followed, hint = [], render(self.hint, vars(submission.parameters))
        failed = {about for about, check in self.presupposes.items() if not submission.passed(check)}
        if failed and not self.parts:
            expect.true(len(failed) < len(self.presupposes), NOTHING_RIGHT.format(self.function), hint=hint)
        for arguments in self.cases(submission, *chosen):
            keywords = arguments[-1] if isinstance(arguments[-1], Keywords) else None
            arguments = arguments if keywords is None else arguments[:-1]
            keywords = keywords or {}
            given = self.given or partial(expect.format_call, self.function)
            with expect.case(given(arguments, keywords), hint):
                result = self._call(submission, arguments, keywords)
                want = submission.solution(self.function, *arguments, probe=self.probe, **keywords)
                if arguments and isinstance(arguments[0], str) and arguments[0] in failed:
                    continue
                got, want = self._compared(submission, result, want, failed)
                if self._follows(submission, result, got, want, arguments):
                    followed.append((repr(got), repr(want)))
                else:
                    self._compare(submission, got, want, arguments)
        results, wanted = ({pair[side] for pair in followed} for side in (0, 1))
        varies = len(results) > 1 or len(wanted) < 2
        expect.true(varies, f"`{self.function}` returns the same for all arguments", got=", ".join(results))

    def _call(self, submission: Submission, arguments: Arguments, keywords: Mapping[str, Any]) -> Any:
        if self.call:
            return self.call(submission, *arguments, **keywords)
        if not self.probe:
            return submission.call(self.function, *arguments, **keywords)
        result = submission.probe(self.probe, self.function, *arguments, **keywords)
        if isinstance(result, dict):
            check_rules(result.get("broken"), f"`{self.function}`")
        return result

    def _compared(
        self, submission: Submission, result: Any, want: Any, failed: Collection[int | str]
    ) -> tuple[Any, Any]:
        """Return what is compared of a result, and of the solution's."""
        if (key := self._key(submission)) != "":
            what = f"what `{self.function}` returns"
            if isinstance(want, tuple):
                result = _like(result, want, what)
            else:
                hint = f"return {{{', '.join(f'{name!r}: ...' for name in want)}}}"
                result = expect.mapping(result, (key,), what, hint=hint)
            result, want = result[key], want[key]
        if self.parts:
            complete = isinstance(result, list | tuple) and (len(result) == len(want) or bool(failed))
            what = f"`{self.function}` does not return a tuple of all its results"
            expect.true(complete, what, expected=f"{len(want)} in a tuple", got=result)
            names = {i: name for i, name in self.parts.items() if i < min(len(want), len(result)) and i not in failed}
            expect.true(bool(names), NOTHING_RIGHT.format(self.function))
            return {name: result[i] for i, name in names.items()}, {name: want[i] for i, name in names.items()}
        if failed and isinstance(want, dict):
            want = {key: right for place, (key, right) in enumerate(want.items()) if place not in failed}
        return (self.view(result), self.view(want)) if self.view else (result, want)

    def _key(self, submission: Submission) -> Any:
        return self.key(submission.parameters) if callable(self.key) else self.key

    def _follows(self, submission: Submission, result: Any, got: Any, want: Any, arguments: Arguments) -> bool:
        """Whether a result follows from other results of the submission."""
        own = self.own(submission, result, *arguments) if self.own else None
        if isinstance(want, np.ndarray) and own is not None:
            own = np.asarray(own, want.dtype)
        if type(own) is type(want) in (dict, list, tuple) and not expect.holds(_like, got, want, ""):
            return False
        return own is not None and expect.holds(self._expect, got, own, "")

    def _compare(self, submission: Submission, got: Any, want: Any, arguments: Arguments) -> None:
        values = vars(submission.parameters)
        key = self._key(submission)
        where = f"`{key}`" if isinstance(key, str) else f"item {key}"
        what = f"what `{self.function}` returns" if key == "" else f"{where} of `{self.function}`"
        try:
            self._expect(got, want, what)
        except expect.CheckFailed as failure:
            for text, mistake in self.mistakes.items():
                hint = render(text, values)
                if hint and expect.holds(self._expect, got, mistake(want, *arguments), ""):
                    failure.parts["hint"] = expect.format_value(hint)
            raise

    def _expect(self, got: Any, want: Any, what: str) -> None:
        """Fail unless a result is right: numbers up to rounding, integers exactly, and of an integer type."""
        if self.compare:
            self.compare(got, want, what)
            return
        got, want = (np.asarray(value) if isinstance(value, np.generic) else value for value in (got, want))
        if isinstance(want, np.ndarray) and not want.ndim and want.dtype.name not in ("float32", "float16"):
            want = want.item()
        if self.parts and isinstance(want, dict):
            for name, right in want.items():
                self._expect(got[name], right, f"{name} by `{self.function}`")
            return
        if isinstance(want, np.ndarray) and want.dtype.kind in "iu":
            expect.integers(got, want, what, typed=self.typed)
        elif isinstance(want, np.ndarray):
            rtol = max(self.rtol, 4e-3) if want.dtype == np.float16 else self.rtol
            dtype = want.dtype if self.typed and want.ndim else None
            expect.close(got, want, what, rtol=rtol, atol=self.atol, dtype=dtype)
        elif isinstance(want, int) and not isinstance(want, bool):
            expect.close_number(expect.integer(got, what), want, f"{what} is wrong")
        elif isinstance(want, float):
            expect.close_number(expect.number(got, what), want, f"{what} is wrong")
        elif isinstance(want, dict | list | tuple) and _has_reals(want):
            for item, right, name in _items(got, want, what):
                self._expect(item, right, name)
        elif isinstance(want, dict | list | tuple):
            expect.equal(_like(got, want, what), want, f"{what} is wrong")
        elif want is None:
            expect.true(got is None, f"{what} is not None", expected="None", got=got)
        else:
            expect.equal(got, want, f"{what} is wrong")


def _has_reals(value: Any) -> bool:
    if isinstance(value, dict | list | tuple):
        return any(map(_has_reals, value.values() if isinstance(value, dict) else value))
    return isinstance(value, np.ndarray | np.generic | float)


def _items(got: Any, want: Any, what: str) -> Iterator[tuple[Any, Any, str]]:
    """Yield what is in two containers side by side, and what it is.

    Raises:
        CheckFailed: The first is another container, or has other keys, more or fewer items.
    """
    if isinstance(want, dict):
        got = expect.mapping(got, tuple(want), what)
        yield from ((got[key], right, f"{key!r} of {what}") for key, right in want.items())
        return
    got = expect.sequence(got, type(want), what)
    expect.equal(len(got), len(want), f"the wrong number of items in {what}")
    yield from ((item, right, f"item {i} of {what}") for i, (item, right) in enumerate(zip(got, want, strict=True)))


def _like(got: Any, want: Any, what: str) -> Any:
    """Return what plain data has in common with `want`: its keys, its items; integers as those of Python.

    Raises:
        CheckFailed: It is another container, or has other keys, more or fewer items, or other numbers than integers.
    """
    if type(want) is int:
        return expect.integer(got, what)
    if isinstance(want, dict):
        got = expect.mapping(got, tuple(want), what)
        return {key: _like(got[key], right, what) for key, right in want.items()}
    if isinstance(want, list | tuple):
        got = expect.sequence(got, type(want), what)
        expect.true(len(got) == len(want), f"the wrong number of items in {what}", expected=want, got=got)
        return type(want)(_like(item, right, what) for item, right in zip(got, want, strict=True))
    return got


def comparison(
    name: str, title: str, number: float, function: str, cases: Cases, *arguments: Any, hint: str, **options: Any
) -> Check:
    """Return a check by `SolutionComparison`: for several that draw their cases by one function, with other arguments.

    Args:
        name: As of `Check`.
        title: As of `Check`.
        number: Points.
        function: As of `SolutionComparison`.
        cases: As of `SolutionComparison`.
        arguments: Of `cases`, besides the submission.
        hint: As of `SolutionComparison`.
        options: As of `SolutionComparison`.
    """
    return Check(name, title, number, SolutionComparison(function, cases, hint, **options), arguments, solved=True)


def compared(number: float, function: str, *, hint: str, **options: Any) -> Callable[[Cases], Check]:
    """Return a decorator that makes a `Check` by `SolutionComparison` of a function that draws the arguments.

    Args:
        number: Points.
        function: As of `SolutionComparison`.
        hint: As of `SolutionComparison`.
        options: As of `SolutionComparison`.
    """

    def wrap(cases: Cases) -> Check:
        check = points(number)(cases)
        return comparison(check.name, check.text, number, function, cases, hint=hint, **options)

    return wrap
