"""A submission as a check sees it: names that can be called, values that can be fetched, files that can be read.

Where the student's code runs is the transport's business: in this process (the student's own notebook) or in another
one (grading). Either way values cross as arrays and plain data, so a check sees the same things in both.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from mlhood.errors import MeasureError
from mlhood.grading.checks.expect import CheckFailed
from mlhood.grading.checks.references import ALWAYS, Leaning
from mlhood.grading.rpc import server
from mlhood.grading.rpc.codec import Message, Remote, WireError, decode, encode

if TYPE_CHECKING:
    from mlhood.measure.table import Table

MAX_FILE_BYTES = 64 << 20


class Transport(Protocol):
    """Carries one request to the student's objects and the reply back."""

    def ask(self, request: Message, seconds: float) -> Message:
        """Return the reply.

        Raises:
            NoAnswer: There was none within the time limit.
        """
        ...

    def fetch(self, path: Path) -> None:
        """See that a file which the student's process has written lies at its path on this side, if there is one.

        Raises:
            BadFile: It is not one that can be read.
        """
        ...


class BadFile(Exception):
    """A link, a special file or one that is too large; says so in words."""


class NoAnswer(Exception):
    """The student's process died, hung or answered nonsense."""


class LocalTransport:
    """Asks the notebook in whose process we are."""

    def __init__(self, namespace: dict[str, Any]) -> None:
        self.namespace = namespace

    def ask(self, request: Message, seconds: float) -> Message:
        """Answer at once."""
        return server.answer(request, self.namespace)

    def fetch(self, path: Path) -> None:
        """It is there: the folder is ours."""


class Submission:
    """What a check asks its questions to.

    Args:
        transport: The way to the student's objects.
        folder: The notebook's working folder, where it leaves its files.
        scratch: An empty folder that both sides can write, for files that checks hand over.
    """

    def __init__(self, transport: Transport, folder: Path, scratch: Path) -> None:
        self.transport = transport
        self.folder = folder
        self.scratch = scratch
        self.seconds = 120.0
        self.rng = np.random.default_rng(0)
        self.cell_errors: list[str] = []
        self.notes: list[str] = []
        self.clocked = True  # whether what a table claims is measured again from outside
        self.leaning = Leaning()
        self.forbidden: tuple[str, ...] = ()
        self._asked: set[str] = set()
        self._leaned: set[str] = set()
        self._memory: dict[str, Any] = {}

    def call(self, target: str | Remote, *args: object, method: str | None = None, **kwargs: object) -> Any:
        """Call a function of the notebook, or an object that an earlier call returned.

        Args:
            target: A name that the notebook defines, `module:name` of an importable function, or a `Remote`.
            args: Arrays, plain data, `wire.Tensor` for an array that shall arrive as a torch tensor, or `Remote`.
            method: Call this method of the target instead.
            kwargs: As `args`.

        Returns:
            Plain data and NumPy arrays; anything else stays there and comes as a `Remote`.

        Raises:
            CheckFailed: The student's code raised an error, died or took too long.
        """
        return self._ask(target, call=True, method=method, args=args, kwargs=kwargs)

    def normal(self, *shape: int) -> np.ndarray:
        """Draw an array from the standard normal distribution, float32."""
        return self.rng.standard_normal(shape).astype(np.float32)

    def value(self, name: str) -> Any:
        """The value of a name of the notebook, as `call` returns it."""
        return self._ask(name, call=False, method=None, args=(), kwargs={})

    def table(self, declared: Table) -> Table:
        """The notebook's table that has the id of `declared`, read anew from its cells.

        What is told of the measurements has to follow from their rounds, and the claims are judged here; that the
        rounds were measured at all is the student's word.

        Args:
            declared: The table as the notebook was given it, empty.

        Raises:
            CheckFailed: There is none, it is declared otherwise, or it is not what `Table.to_dict` writes.
        """
        data = self._request({"table": declared.id}, f"the table `{declared.id}`")
        if data is None:
            raise CheckFailed(
                f"the notebook has no table `{declared.id}`",
                expected="the table that the given cell declares, under any name",
                hint=self.why() or "run the cell that declares the table, then the one that fills it",
            )
        try:
            return declared.read(data)
        except MeasureError as error:
            parts = {key: error.parts.get(key) for key in ("expected", "got") if key in error.parts}
            where, todo = error.parts.get("where"), error.parts.get("what to do")
            raise CheckFailed(f"the table `{declared.id}`: {error.what}", given=where, hint=todo, **parts) from None

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """What `make` returns, made only once a task: for work that several checks of it need."""
        if name not in self._memory:
            before = self._asked, self._leaned
            self.begin_check()
            try:
                self._memory[name] = make(), self._asked, self._leaned
            finally:
                self._asked, self._leaned = self._asked | before[0], self._leaned | before[1]
        value, asked, leaned = self._memory[name]
        self._asked, self._leaned = self._asked | asked, self._leaned | leaned
        return value

    def begin(self, seconds: float, forbidden: tuple[str, ...] = ()) -> None:
        """Start on another task: its limits count, and what was made for the one before is forgotten."""
        self.seconds, self.forbidden = seconds, forbidden
        self.notes = []
        self._memory.clear()

    def begin_check(self) -> None:
        """Start on another check: what it asks for has not leaned on anything yet."""
        self._asked, self._leaned = set(), set()

    def stand_alone(self) -> None:
        """Check that what was asked for since `begin_check` leans on nothing that its task names as out of bounds.

        Raises:
            CheckFailed: It does, by its source or by what it called.
        """
        use = self.leaning.find(self._asked, (*self.forbidden, *ALWAYS))
        called = next((name for name in self.forbidden if name in self._leaned), None)
        if use is None and called is None:
            return
        raise CheckFailed(
            f"the solution leans on `{use.name if use else called}`",
            expected="a solution of your own",
            got=f"the line `{use.line}`" if use else "it was called while this was checked",
            hint=f"this task is to be solved without {', '.join(f'`{name}`' for name in self.forbidden or ALWAYS)}",
        )

    def file(self, name: str) -> Path:
        """The path of a file that the notebook has written into its folder, or into one below that it has gone to.

        Raises:
            CheckFailed: There is none, it is no plain file of that folder, or it is larger than 64 MiB.
        """
        path = self.folder / name
        self._fetch(path, name)
        if not os.path.lexists(path) and (below := self._gone_to()):
            path = below / name
            self._fetch(path, name)
        return self._plain_file(path, self.folder, name)

    def _gone_to(self) -> Path | None:
        """The folder below its own that the notebook has changed to, by its own word; None if there is none."""
        try:
            told = self._ask("os:getcwd", call=True, method=None, args=(), kwargs={})
            below = os.path.relpath(str(told), self.folder.resolve())
        except (CheckFailed, ValueError):  # there is no way from one drive of Windows to another
            return None
        return None if below.startswith(os.pardir) else self.folder / below

    def written(self, path: Path) -> Path:
        """The path of a file that a call was asked to write into the scratch folder."""
        self._fetch(path, path.name)
        if not path.exists() and not path.is_symlink():
            raise CheckFailed(
                "your function has not written the file that it was asked for",
                expected="a file at the path that it is given",
                hint="write to the path that comes in as an argument, whatever it is",
            )
        return self._plain_file(path, self.scratch, path.name)

    def _fetch(self, path: Path, name: str) -> None:
        try:
            self.transport.fetch(path)
        except BadFile as error:
            raise CheckFailed(f"`{name}` {error}", expected="a plain file of at most 64 MiB") from None

    def _plain_file(self, path: Path, folder: Path, name: str) -> Path:
        try:
            status = path.lstat()
        except OSError:
            raise CheckFailed(
                f"there is no file `{name}`",
                expected=f"a file `{name}`, written by the notebook where it runs",
                hint=self.why(),
            ) from None
        if not stat.S_ISREG(status.st_mode) or not path.resolve().is_relative_to(folder.resolve()):
            raise CheckFailed(f"`{name}` is not a plain file of its own", got="a link or a special file")
        if status.st_size > MAX_FILE_BYTES:
            raise CheckFailed(f"`{name}` is too large", expected="at most 64 MiB", got=f"{status.st_size >> 20} MiB")
        return path

    def _ask(self, target: str | Remote, **request: Any) -> Any:
        if isinstance(target, str) and ":" not in target:
            self._asked.add(target)
        return self._request({"target": target, **request}, _called(target))

    def _request(self, request: dict[str, Any], called: str) -> Any:
        """Send a request about what the student knows as `called`."""
        message = encode({**request, "watch": list(self.forbidden)} if self.forbidden else request)
        try:
            reply = decode(self.transport.ask(message, self.seconds))
        except (NoAnswer, WireError) as error:
            raise CheckFailed(f"{called} gave no usable answer", got=str(error)) from None
        if isinstance(reply, dict) and "value" in reply:
            leaned = reply.get("leaned")
            self._leaned.update(filter(_is_text, leaned) if isinstance(leaned, list) else [])
            return reply["value"]
        raise self._student_error(called, reply.get("error") if isinstance(reply, dict) else None)

    def _student_error(self, called: str, error: Any) -> CheckFailed:
        if not isinstance(error, dict):
            return CheckFailed(f"{called} gave no usable answer", got="a malformed reply")
        kind, message, line = (str(error.get(key, "")) for key in ("type", "message", "line"))
        if kind == "NotImplementedError":
            return CheckFailed(
                f"{called} is not written yet",
                hint="replace `raise NotImplementedError()` by your code",
            )
        if kind == "NameError" and "the notebook defines no" in message:
            return CheckFailed(message, hint=self.why() or "run its cell first, and keep the name that the task gives")
        where = f" in the line `{line}`" if line else ""
        return CheckFailed(f"{called} stops with an error", got=f"{kind}: {message}{where}", hint=self.why())

    def why(self) -> str | None:
        """The first error in the cells of this task, which often explains the rest."""
        return self.cell_errors[0] if self.cell_errors else None  # the first one causes the others


def _called(target: str | Remote) -> str:
    """What was called, in the student's words: our own probes run their code, under a name they do not know."""
    if isinstance(target, Remote):
        return f"the {target.type}"
    return "your code" if ":" in target else f"`{target}`"


def _is_text(value: object) -> bool:
    return isinstance(value, str)
