"""How requests reach a notebook's objects, and how files come back."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from mlhood.grading.rpc.server import handle_request

MAX_FETCHED_BYTES = 64 << 20


class NoReply(Exception):
    """The student's process died, timed out or sent no valid reply."""


class InvalidFile(Exception):
    """The file is a special file or too large, or cannot be read."""


class Transport(Protocol):
    """Sends requests to a notebook's objects."""

    def send(self, request: bytes, seconds: float) -> bytes:
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

    def cpu_seconds(self) -> float | None:
        """Return the CPU time of the student's process so far, or None if it is unknown or may start others."""
        ...


class LocalTransport:
    """Executes requests in this process, on names that it holds."""

    def __init__(self, namespace: dict[str, Any]) -> None:
        self.namespace = namespace

    def send(self, request: bytes, seconds: float) -> bytes:
        """Execute the request at once."""
        return handle_request(request, self.namespace, installed=True)

    def fetch(self, path: Path) -> None:
        """Do nothing: the file is in a folder of this process."""

    def cpu_seconds(self) -> None:
        """Return None: this process does other work, too."""
