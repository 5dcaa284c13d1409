"""A limited process: runs a named parser of ours on what a student wrote, and returns checked plain data.

ONNX Runtime and the compiler are large programs in which a hostile file may find a fault, and a small file can unfold
to gigabytes. So calls are in processes with limits on memory, time and the size of replies, and in bubblewrap where
that is available: without network, and without files of the grader. Those of a submission share one. The reply is read
like a student's (see `codec`), since the process may be under the control of what it has read.

    python -P -m mlhood.grading.rpc.limited MEMORY SECONDS SANDBOXED

A process takes half a second to start, mostly imports, which is why replies of kernels, of which a notebook has
hundreds, are not read in one (see `codec` for their limits).
"""

from __future__ import annotations

import contextlib
import math
import os
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, cast

from mlhood.grading.rpc.codec import MAX_MESSAGE_BYTES, CodecError, decode, encode
from mlhood.grading.rpc.pipes import NoAnswer, TooLate, WrongAnswer, answer, ask
from mlhood.grading.rpc.server import handle_request
from mlhood.grading.rpc.sources import python_path

MEMORY = 1 << 30
"""Bytes of data that a parser may allocate. The course's own files and graphs need less than 0.4 GiB on two cores."""
MEMORY_OF_A_CORE = 32 << 20  # libraries start a thread for each, with a stack
MAX_THREADS = 1024
WORK = Path("/tmp/work")  # noqa: S108 (inside the sandbox)
WORK_BYTES = 64 << 20
KILL_SECONDS = 20.0


class IsolatedCallError(Exception):
    """The function raised an error, crashed or exceeded a limit."""


class IsolatedProcess:
    """A limited process for calls of one submission, which may change what later ones return.

    It starts with the first call, and again with the next one after it has failed.

    Args:
        seconds: Limit on wall time of a call, and on processor time of all calls on each core.
        memory: Limit on allocated memory, in bytes.
    """

    def __init__(self, seconds: float, memory: int = MEMORY) -> None:
        self.seconds, self.memory = seconds, memory + MEMORY_OF_A_CORE * (os.cpu_count() or 1)
        self._process: subprocess.Popen[bytes] | None = None
        self.close = lambda: None

    def call(self, target: str, *args: object) -> Any:
        """Call `module:function` of ours with plain data, bytes and arrays (see `codec.encode`).

        Raises:
            IsolatedCallError: It raised an error, crashed or exceeded a limit, or what is sent is too large.
        """
        try:
            request = encode({"target": target, "method": None, "call": True, "args": args, "kwargs": {}})
            reply = decode(self._answer(request))
        except CodecError as error:
            self.close()
            raise IsolatedCallError(str(error)) from None
        return _value(reply)

    def _answer(self, request: bytes) -> bytes:
        process = self._process if self._process and self._process.poll() is None else self._start()
        pipes = cast("IO[bytes]", process.stdin), cast("IO[bytes]", process.stdout)
        try:
            return ask(*pipes, request, seconds=self.seconds, limit=MAX_MESSAGE_BYTES, kill=process.kill)
        except TooLate:
            raise IsolatedCallError(f"it takes more than {self.seconds:g} seconds") from None
        except WrongAnswer as error:
            raise IsolatedCallError(f"its reply is too large: it {error}") from None
        except NoAnswer:
            code = process.wait()
            raise IsolatedCallError(
                f"it crashes the program that reads it, or takes too much memory ({code})"
            ) from None

    def _start(self) -> subprocess.Popen[bytes]:
        self.close()
        with contextlib.ExitStack() as stack:
            folder = tempfile.TemporaryDirectory(prefix="mlhood-", ignore_cleanup_errors=True)
            prefix, filters = stack.enter_context(_sandbox())
            limits = [str(self.memory), str(math.ceil(self.seconds)), str(int(bool(prefix)))]
            process = subprocess.Popen(
                [*prefix, sys.executable, "-P", "-m", "mlhood.grading.rpc.limited", *limits],
                cwd=folder.name,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,  # nobody reads it, and it may be long
                pass_fds=filters,
                env={} if prefix else {**os.environ, "PYTHONPATH": python_path()},
            )
        self._process, self.close = process, weakref.finalize(self, _end, process, folder)
        return process


def _end(process: subprocess.Popen[bytes], folder: tempfile.TemporaryDirectory[str]) -> None:
    process.kill()  # and with bubblewrap all that it has started
    process.wait(KILL_SECONDS)
    for pipe in filter(None, (process.stdin, process.stdout)):
        with contextlib.suppress(BrokenPipeError):
            pipe.close()
    folder.cleanup()


def _value(reply: Any) -> Any:
    if isinstance(reply, dict) and "value" in reply:
        return reply["value"]
    error = reply.get("error") if isinstance(reply, dict) else None
    if not isinstance(error, dict):
        raise IsolatedCallError("it gives no answer")
    if error.get("type") == "MemoryError":
        raise IsolatedCallError(f"it takes too much memory: {error.get('message')}")
    raise IsolatedCallError(str(error.get("message")))


@contextlib.contextmanager
def _sandbox() -> Iterator[tuple[Sequence[str], tuple[int, ...]]]:
    """Yield what begins the command line, and the descriptors that it needs; nothing without bubblewrap."""
    try:
        from mlhood.grading.sandbox import bubblewrap, seccomp
    except ModuleNotFoundError:  # the student version has no sandbox
        yield (), ()
        return
    if bubblewrap.problem():
        yield (), ()
        return
    with seccomp.opened() as filters:
        yield (
            bubblewrap.command([WORK], WORK_BYTES, filters=filters, view=bubblewrap.student_view(grader=True)),
            filters,
        )


def main() -> None:
    """Set limits, answer the requests on the standard input on the standard output, and end."""
    memory, seconds, sandboxed = map(int, sys.argv[1:])
    set_limits(memory, seconds, sandboxed=bool(sandboxed))
    answer(lambda request: handle_request(request, {}))


def set_limits(memory: int, seconds: int, *, sandboxed: bool) -> None:
    """Set the limits that the system enforces on a process, irrevocably; as many as this system has."""
    with contextlib.suppress(ImportError):
        import resource

        limits = {
            "RLIMIT_DATA": memory,
            "RLIMIT_CPU": seconds * (os.cpu_count() or 1) + 1,
            "RLIMIT_FSIZE": MAX_MESSAGE_BYTES,
            "RLIMIT_CORE": 0,
            **({"RLIMIT_NPROC": MAX_THREADS} if sandboxed else {}),  # outside it counts all of the user's processes
        }
        for name, limit in limits.items():
            with contextlib.suppress(ValueError, OSError):  # macOS refuses some, and a lower one may hold already
                resource.setrlimit(getattr(resource, name), (limit, limit))


if __name__ == "__main__":
    main()
