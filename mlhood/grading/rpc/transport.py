"""How requests reach a notebook's objects or a process of ours that may crash, and how files come back."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Protocol

from mlhood.grading.rpc.codec import CodecError, Message, decode, encode
from mlhood.grading.rpc.file_channel import FileChannel
from mlhood.grading.rpc.server import handle_request

MAX_FETCHED_BYTES = 64 << 20
SERVE = "import sys; from mlhood.grading.rpc.server import serve; serve(sys.argv[1], 1, {})"


class NoReply(Exception):
    """The student's process died, timed out or sent no valid reply."""


class InvalidFile(Exception):
    """The file is a link, a special file or too large; the message says which."""


class Transport(Protocol):
    """Sends requests to a notebook's objects."""

    def send(self, request: Message, seconds: float) -> Message:
        """Send a request (see `server.handle_request`) and return the reply.

        Raises:
            NoReply: There was none within the time limit.
        """
        ...

    def fetch(self, path: Path) -> None:
        """Make a file of the student's process available at its path in this process, if there is one.

        Raises:
            InvalidFile: It cannot be read safely.
        """
        ...


class LocalTransport:
    """Executes requests in this process, on names that it holds."""

    def __init__(self, namespace: dict[str, Any]) -> None:
        self.namespace = namespace

    def send(self, request: Message, seconds: float) -> Message:
        """Execute the request at once."""
        return handle_request(request, self.namespace, installed=True)

    def fetch(self, path: Path) -> None:
        """Do nothing: the file is in a folder of this process."""


class IsolatedCallError(Exception):
    """The function raised an error, crashed or timed out."""


def run_isolated(target: str, *args: object, seconds: float = 60.0) -> Any:
    """Call `module:function` of ours in a new process, with plain data, bytes and arrays.

    Raises:
        IsolatedCallError: It raised an error, crashed or timed out.
    """
    with tempfile.TemporaryDirectory(prefix="mlhood-", ignore_cleanup_errors=True) as folder:
        channel = FileChannel(folder)
        request = {"target": target, "method": None, "call": True, "args": args, "kwargs": {}}
        channel.send("request", 1, encode(request))
        try:
            subprocess.run(
                [sys.executable, "-c", SERVE, folder],
                cwd=folder,
                timeout=seconds,
                check=True,
                stdin=subprocess.DEVNULL,
                capture_output=True,
            )
            reply = decode(channel.receive("reply", 1))
        except subprocess.TimeoutExpired:
            raise IsolatedCallError(f"it takes more than {seconds:g} seconds") from None
        except subprocess.CalledProcessError as error:
            raise IsolatedCallError(f"it crashes the program that reads it (exit code {error.returncode})") from None
        except CodecError as error:
            raise IsolatedCallError(str(error)) from None
    if "error" in reply:
        raise IsolatedCallError(reply["error"]["message"])
    return reply["value"]
