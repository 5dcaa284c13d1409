"""Checks that are data: what a function of the notebook returns is compared with what the course's solution returns.

A check of this kind says which function is called, draws its arguments, and says what of the result counts and what to
tell about common mistakes. Calling, comparing, and wording a failure with its input are done here, alike for all tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.task import Check, points
from mlhood.grading.variants.templates import render

if TYPE_CHECKING:
    from mlhood.grading.checks.submission import Submission

Arguments = tuple[Any, ...]  # the last of which may be `Keywords`
Cases = Callable[["Submission"], Iterable[Arguments]]


class Keywords(dict[str, Any]):
    """The keyword arguments of a call."""


@dataclass(frozen=True)
class Comparison:
    """A comparison of a function of the notebook with that of the course's solution.

    Args:
        function: Its name.
        cases: Draws the arguments of each call.
        hint: How to go on; a template, where it depends on the variant, as are the hints of mistakes.
        key: Compare what a dictionary has under this key; a template, too. Empty to compare all of the result.
        view: Compare what this makes of a result, such as `math.isinf`.
        mistakes: By the hint, the value that a common mistake leads to, as a function of the right value and the
            arguments. Where the hint is empty, it is no mistake in this variant.
        own: Returns what is as good as the solution's result, as it follows from other results of the submission, so
            that an error in those costs their points only; None if there is no such value. It gets the submission, the
            result, and the arguments.
        typed: Whether arrays have to be of the solution's type; integers may have more bits if not.
        rtol: Relative tolerance of arrays of floating-point numbers; at least 4e-3 in half precision.
        atol: Absolute tolerance.
    """

    function: str
    cases: Cases
    hint: str
    key: str = ""
    view: Callable[[Any], Any] | None = None
    mistakes: Mapping[str, Callable[..., Any]] = field(default_factory=dict, hash=False)
    own: Callable[..., Any] | None = None
    typed: bool = False
    rtol: float = 1e-4
    atol: float = 1e-5

    def __call__(self, submission: Submission) -> None:
        """Compare the results of all cases.

        Raises:
            CheckFailed: A result differs; or they follow from other results, and are the same for all arguments.
        """
        followed, hint = [], render(self.hint, vars(submission.parameters))
        for arguments in self.cases(submission):
            keywords = arguments[-1] if isinstance(arguments[-1], Keywords) else None
            arguments = arguments if keywords is None else arguments[:-1]
            keywords = keywords or {}
            with expect.case(expect.format_call(self.function, arguments, keywords), hint):
                result = submission.call(self.function, *arguments, **keywords)
                want = submission.solution(self.function, *arguments, **keywords)
                got, want = self._compared(submission, result, want)
                if self._follows(submission, result, got, want, arguments):
                    followed.append((repr(got), repr(want)))
                else:
                    self._compare(submission, got, want, arguments)
        results, wanted = ({pair[side] for pair in followed} for side in (0, 1))
        varies = len(results) > 1 or len(wanted) < 2
        expect.true(varies, f"`{self.function}` returns the same for all arguments", got=", ".join(results))

    def _compared(self, submission: Submission, result: Any, want: Any) -> tuple[Any, Any]:
        """Return what is compared of a result, and of the solution's."""
        if self.key:
            key = render(self.key, vars(submission.parameters))
            hint = f"return {{{', '.join(f'{name!r}: ...' for name in want)}}}"
            result = expect.mapping(result, (key,), f"what `{self.function}` returns", hint=hint)[key]
            want = want[key]
        return (self.view(result), self.view(want)) if self.view else (result, want)

    def _follows(self, submission: Submission, result: Any, got: Any, want: Any, arguments: Arguments) -> bool:
        """Whether a result follows from other results of the submission."""
        own = self.own(submission, result, *arguments) if self.own else None
        if isinstance(want, np.ndarray) and own is not None:
            own = np.asarray(own, want.dtype)
        return own is not None and expect.holds(self._expect, got, own, "")

    def _compare(self, submission: Submission, got: Any, want: Any, arguments: Arguments) -> None:
        values = vars(submission.parameters)
        key = render(self.key, values)
        what = f"`{key}` of `{self.function}`" if key else f"what `{self.function}` returns"
        try:
            self._expect(got, want, what)
        except expect.CheckFailed as failure:
            for text, wrong in self.mistakes.items():
                hint = render(text, values)
                if hint and expect.holds(self._expect, got, wrong(want, *arguments), ""):
                    failure.parts["hint"] = expect.format_value(hint)
            raise

    def _expect(self, got: Any, want: Any, what: str) -> None:
        """Fail unless a result is right: numbers up to rounding, integers exactly, and of an integer type."""
        if isinstance(want, np.generic) or (isinstance(want, np.ndarray) and not want.ndim):
            want = want.item()
        if isinstance(want, np.ndarray) and want.dtype.kind in "iu":
            expect.integers(got, want, what, typed=self.typed)
        elif isinstance(want, np.ndarray):
            rtol = max(self.rtol, 4e-3) if want.dtype == np.float16 else self.rtol
            dtype = want.dtype if self.typed else None
            expect.close(got, want, what, rtol=rtol, atol=self.atol, dtype=dtype)
        elif isinstance(want, int) and not isinstance(want, bool):
            expect.close_number(expect.integer(got, what), want, f"{what} is wrong")
        elif isinstance(want, float):
            expect.close_number(expect.number(got, what), want, f"{what} is wrong")
        else:
            expect.equal(got, want, f"{what} is wrong")


def compared(number: float, function: str, *, hint: str, **options: Any) -> Callable[[Cases], Check]:
    """Return a decorator that makes a `Check` by `Comparison` of a function that draws the arguments.

    Args:
        number: Points.
        function: As of `Comparison`.
        hint: As of `Comparison`.
        options: As of `Comparison`.
    """

    def wrap(cases: Cases) -> Check:
        check = points(number)(cases)
        return Check(check.name, check.text, number, Comparison(function, cases, hint, **options))

    return wrap
