"""A submission as a check sees it: names to call, values to fetch, files to read.

The notebook's objects are in this process (the student's own notebook) or in another one (grading). Either way values
are transferred as arrays and plain data, so a check sees the same things in both.
"""

from __future__ import annotations

import math
import stat
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from mlhood.errors import MeasureError
from mlhood.grading.bare.libraries import NOT_AVAILABLE, Libraries
from mlhood.grading.checks.cell_lines import MAX_SHOWN, CellLines
from mlhood.grading.checks.expect import (
    MAX_SHOWN_CHARACTERS,
    CheckFailed,
    CheckSkipped,
    CheckUndecided,
    NotWritten,
    mapping,
    shortened,
    single_line,
)
from mlhood.grading.rpc.codec import CodecError, Remote, decode, encode
from mlhood.grading.rpc.guard import CHANGED, REUSED, SHARED, RuleBroken
from mlhood.grading.rpc.limited import IsolatedProcess
from mlhood.grading.rpc.server import NOT_DEFINED
from mlhood.grading.rpc.sources import sources_of
from mlhood.grading.rpc.transport import MAX_FETCHED_BYTES, InvalidFile, NoReply, Transport

if TYPE_CHECKING:
    from mlhood.measure.table import Table


PARSER_SECONDS = 90.0  # of a call
# what every function of a notebook keeps to, as its top says
RULES = {
    CHANGED: "{name} changes its arguments",
    SHARED: "{name} returns its argument or a part of it, not a new array",
    REUSED: "{name} returns memory that it has returned before, so that an earlier result changes",
}


@dataclass(frozen=True)
class Session:
    """A running notebook: what stays the same for all of its checks.

    Args:
        transport: Sends requests to the notebook's objects, those that are graded.
        folder: The notebook's working folder, where it leaves its files.
        scratch: An empty folder that both processes can write, for files that checks exchange with the notebook.
        notebook: Where all of the notebook has run, with its tables and files, if that is another process.
        remeasure: Whether the grader measures the claims of tables again.
        lines: The lines of the cells run so far, among which an error is found.
        cell_errors: The errors of the current task's cells; filled as they run.
        kept: What checks of several tasks share.
    """

    transport: Transport
    folder: Path
    scratch: Path
    notebook: Transport | None = None
    remeasure: bool = True
    lines: CellLines = field(default_factory=CellLines)
    cell_errors: list[str] = field(default_factory=list)
    kept: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class CheckContext:
    """What holds for one check: the source of its inputs and the limits of its task.

    Args:
        rng: Inputs are drawn from it.
        seconds: Time limit of each call into the student's code.
        libraries: The libraries of the task, if its functions run in a bare kernel.
        parameters: The values of the project's parameters, by attribute.
        solution: Calls a function of the course's solutions.
        passed: Whether another check of the task passes; by default, it does.
    """

    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    seconds: float = 120.0
    libraries: Libraries | None = None
    parameters: SimpleNamespace = field(default_factory=SimpleNamespace)
    solution: Callable[..., Any] | None = None
    passed: Callable[[Any], bool] = lambda check: True


@dataclass(frozen=True)
class Reached:
    """A figure that an open task is graded by: the submission's, and that of the course's own solution.

    `figure` is its name with the unit, as the task declares it.
    """

    value: float
    course: float
    smaller_is_better: bool = False
    figure: str = ""

    @property
    def text(self) -> str:
        """The figure in words: `cycles: 1,204 (reference: 1,190)`."""
        return f"{self.figure}: {format_figure(self.value)} (reference: {format_figure(self.course)})"


class Submission:
    """A running notebook as one check sees it.

    Args:
        session: The notebook.
        context: Inputs and limits of the check.
        cache: Results of `once` that the checks of a task share.

    Attributes:
        notes: Remarks for the student beside the task's result; checks append to it.
        reached: The figures of an open task; see `reach`.
    """

    def __init__(
        self, session: Session, context: CheckContext | None = None, cache: dict[str, Any] | None = None
    ) -> None:
        self.session = session
        self.context = context or CheckContext()
        self.notes: list[str] = []
        self.reached: list[Reached] = []
        self._cache: dict[str, Any] = {} if cache is None else cache

    @property
    def rng(self) -> np.random.Generator:
        """The generator that inputs are drawn from."""
        return self.context.rng

    @property
    def parameters(self) -> Any:
        """The values of the project's parameters in this variant of the course: `submission.parameters.slope`."""
        return self.context.parameters

    @property
    def folder(self) -> Path:
        """The notebook's working folder."""
        return self.session.folder

    @property
    def parser(self) -> IsolatedProcess:
        """A process that reads what the submission has written, one for all checks: it takes a second to start."""
        return self.session.kept.setdefault("parser", IsolatedProcess(PARSER_SECONDS))

    @property
    def scratch(self) -> Path:
        """A folder that both processes can write."""
        return self.session.scratch

    @property
    def notebook(self) -> Transport:
        """Where all of the notebook has run, with its tables and files."""
        return self.session.notebook or self.session.transport

    def in_notebook(self) -> Submission:
        """Return this submission where all of the notebook has run: what its objects are there is a claim."""
        return Submission(replace(self.session, transport=self.notebook), self.context, self._cache)

    def call(self, target: str | Remote, *args: object, method: str | None = None, **kwargs: object) -> Any:
        """Call a function of the notebook, or an object that an earlier call returned.

        Args:
            target: A name that the notebook defines, `module:name` of an importable function, or a `Remote`.
            args: Arrays, plain data, `codec.TorchTensor` for an array to receive as a torch tensor, or `Remote`.
            method: Call this method of the target instead.
            kwargs: As `args`.

        Returns:
            Plain data and NumPy arrays; any other object stays in the student's process and is returned as a `Remote`.

        Raises:
            CheckFailed: The student's code raised an error, died or timed out; or a function of the notebook has
                changed one of its arguments, or returned memory of one, which no task allows (see `RULES`).
        """
        return self._request_target(target, call=True, method=method, args=args, kwargs=kwargs)

    def passed(self, *checks: Callable[[Submission], None]) -> bool:
        """Whether other checks of the task, each a `Check`, pass: a fault which they find costs no points here, too."""
        return all(map(self.context.passed, checks))

    def solution(self, name: str, *args: object, probe: str = "", **kwargs: object) -> Any:
        """Call the function of this name that the course's solutions define for this variant, as plain Python.

        With a probe, `module:name` of a function of ours, that is called with the function and the arguments.

        In the student version, which has no solutions, results of the same calls in the same order were recorded: so
        which calls a check makes, and with which arguments, follows from its draws alone, not from a submission.
        """
        if self.context.solution is None:
            raise TypeError(f"this project has no solution that defines `{name}`")
        return self.context.solution(name, *args, probe=probe, **kwargs)

    def reach(self, value: float, *, course: float, smaller_is_better: bool = False) -> None:
        """Record the figure that an open task is graded by, as the grader has measured it.

        Args:
            value: The submission's.
            course: That of the course's own solution, measured or computed in the same way.
            smaller_is_better: The order of the ranking.
        """
        if math.isfinite(value) and math.isfinite(course):
            self.reached.append(Reached(float(value), float(course), smaller_is_better))

    def normal(self, *shape: int) -> np.ndarray:
        """Draw an array from the standard normal distribution, float32."""
        return self.rng.standard_normal(shape).astype(np.float32)

    def probe(self, target: str, name: str, *args: object, keys: tuple[str, ...] = (), **kwargs: Any) -> Any:
        """Call a function of ours in the student's process with a function of the notebook; return what it returns.

        Args:
            target: `module:name` of our function.
            name: Of the notebook's, its first argument.
            args: Its other arguments, as `kwargs`.
            keys: If any, the result has to be a dictionary with these; it fails if `broken` in it names a rule.

        Raises:
            CheckFailed: As of `call`.
        """
        request: dict[str, Any] = {"call": True, "method": None, "args": (self.value(name), *args), "kwargs": kwargs}
        result = self._request_target(target, f"`{name}`", **request)
        if keys:
            result = mapping(result, keys, f"what `{name}` does")
            check_rules(result.get("broken"), f"`{name}`")
        return result

    def value(self, name: str) -> Any:
        """Return the value of a name of the notebook, as `call` does."""
        return self._request_target(name, call=False, method=None, args=(), kwargs={})

    def table(self, declared: Table) -> Table:
        """Return the notebook's table that has the id of `declared`, rebuilt from its cells.

        The claims are evaluated here. Whether the rounds were measured at all is only the student's word.

        Args:
            declared: The table as the notebook was given it, empty.

        Raises:
            CheckFailed: There is none, it is declared otherwise, or it is not what `Table.to_dict` writes.
        """
        data = self._request({"table": declared.id}, f"the table `{declared.id}`", self.notebook)
        if data is None:
            raise CheckFailed(
                f"the notebook has no table `{declared.id}`",
                expected="the table that the given cell declares, under any name",
                note=self.first_cell_error() or "run the cell that declares the table, then the one that fills it",
            )
        try:
            return declared.read(data)
        except MeasureError as error:
            parts = {key: error.parts.get(key) for key in ("expected", "got") if key in error.parts}
            where, todo = error.parts.get("where"), error.parts.get("what to do")
            raise CheckFailed(f"the table `{declared.id}`: {error.what}", given=where, hint=todo, **parts) from None

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """Return the result of `make`, which is called once per task: for work that several of its checks need.

        Raises:
            CheckFailed: `make` has raised it, now or for a check before; CheckSkipped and CheckUndecided, too.
        """
        if name not in self._cache:
            try:
                self._cache[name] = make(), None
            except (CheckFailed, CheckSkipped, CheckUndecided) as failure:
                self._cache[name] = None, failure
        result, failure = self._cache[name]
        if failure:
            raise failure
        return result

    def file(self, name: str) -> Path:
        """Return the path of a file that the notebook wrote into its folder.

        Raises:
            CheckFailed: There is none, it is not a regular file of that folder, or it is larger than 64 MiB.
        """
        path = self.folder / name
        self._fetch(path, name)
        return self._regular_file(path, self.folder, name)

    def written(self, path: Path) -> Path:
        """Return the path of a file in the scratch folder, after a call that was to write it.

        Raises:
            CheckFailed: There is none, it is not a regular file of that folder, or it is larger than 64 MiB.
        """
        self._fetch(path, path.name)
        if not path.exists() and not path.is_symlink():
            raise CheckFailed(
                "your function did not write the file",
                expected="a file at the path that is passed to it",
                hint="write to the path that is passed as an argument, whatever it is",
            )
        return self._regular_file(path, self.scratch, path.name)

    def _fetch(self, path: Path, name: str) -> None:
        in_scratch = path.is_relative_to(self.scratch)
        try:
            (self.session.transport if in_scratch else self.notebook).fetch(path)
        except InvalidFile as error:
            raise CheckFailed(f"`{name}` {error}", expected="a regular file of at most 64 MiB") from None

    def _regular_file(self, path: Path, folder: Path, name: str) -> Path:
        try:
            status = path.lstat()
        except OSError:
            raise CheckFailed(
                f"there is no file `{name}`",
                expected=f"a file `{name}`, written by the notebook into its working folder",
                note=self.first_cell_error(),
            ) from None
        if not stat.S_ISREG(status.st_mode) or not path.resolve().is_relative_to(folder.resolve()):
            raise CheckFailed(f"`{name}` is not a regular file", got="a link or a special file")
        if status.st_size > MAX_FETCHED_BYTES:
            raise CheckFailed(f"`{name}` is too large", expected="at most 64 MiB", got=f"{status.st_size >> 20} MiB")
        return path

    def _request_target(self, target: str | Remote, name: str = "", **request: Any) -> Any:
        sources = sources_of(target) if isinstance(target, str) else {}
        message = {"target": target, **request} | ({"sources": sources} if sources else {})
        name = name or _name_for_student(target)
        guarded = request["call"] and isinstance(target, str) and ":" not in target
        return self._request(message | ({"guard": True} if guarded else {}), name)

    def _request(self, request: dict[str, Any], name: str, transport: Transport | None = None) -> Any:
        """Send a request about an object that the student knows as `name`."""
        transport = transport or self.session.transport
        try:
            reply = decode(transport.send(encode(request), self.context.seconds))
        except (NoReply, CodecError) as error:
            raise CheckFailed(f"{name} gave no usable answer", got=str(error)) from None
        if isinstance(reply, dict) and "value" in reply:
            check_rules(reply.get("broken"), name)
            return reply["value"]
        raise self._student_error(name, reply.get("error") if isinstance(reply, dict) else None)

    def _student_error(self, name: str, error: Any) -> CheckFailed:
        if not isinstance(error, dict):
            return CheckFailed(f"{name} gave no usable answer", got="a malformed reply")
        kind, message, line = (str(error.get(key, "")) for key in ("type", "message", "line"))
        if kind == "NotImplementedError" and not message:  # which libraries explain
            return NotWritten(f"{name} is not written yet", note="replace `raise NotImplementedError()` by your code")
        if kind == "NameError" and NOT_DEFINED in message:
            note = self.first_cell_error() or "run its cell first, and keep the name that the task gives"
            return CheckFailed(message, note=note)
        if kind == "ModuleNotFoundError" and NOT_AVAILABLE in message and self.context.libraries:
            packages = " and ".join(self.context.libraries.packages)
            return CheckFailed(f"{name}: {message}", expected=f"a solution with {packages}")
        if kind == RuleBroken.__name__:
            rule, _, function = single_line(message).partition(" ")
            return _broken_rule(rule, f"`{function}`")
        number = error.get("number")
        where = self.session.lines.find([(number, line)] if isinstance(number, int) else [])
        if line and not where:  # not a line of a cell that was run: only what the student's process says
            where = f"in the line `{single_line(line[:MAX_SHOWN])}`"
        text = shortened(f"{kind}: {message}", MAX_SHOWN_CHARACTERS - len(where) - 1)
        return CheckFailed(f"{name} stops with an error", got=f"{text} {where}".strip(), note=self.first_cell_error())

    def first_cell_error(self) -> str | None:
        """Return the first error in the cells of this task, which often causes the others."""
        return self.session.cell_errors[0] if self.session.cell_errors else None


def format_figure(value: float) -> str:
    """Return a figure of an open task with its thousands separated, or to three digits."""
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.3g}"


def check_rules(broken: object, name: str) -> None:
    """Fail if a call has broken a rule that holds for all functions of a notebook; its top says them.

    Args:
        broken: What `rpc.guard.CallGuard` says.
        name: The function, for the student.

    Raises:
        CheckFailed: It has.
    """
    if isinstance(broken, str) and broken in RULES:
        raise _broken_rule(broken, name)


def _broken_rule(rule: str, name: str) -> CheckFailed:
    return CheckFailed(
        RULES.get(rule, "{name} breaks a rule").format(name=name),
        expected="new results; the arguments are as they were before",
        hint="compute a new array, or begin with a copy: y = x.copy()",
    )


def _name_for_student(target: str | Remote) -> str:
    """Return the name of a target in a message; our probes run student code under names that the student never saw."""
    if isinstance(target, Remote):
        return f"the {target.type}"
    return "your code" if ":" in target else f"`{target}`"
