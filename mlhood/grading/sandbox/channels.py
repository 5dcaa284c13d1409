"""The channels to an untrusted kernel: what is received is limited before it takes memory of the grader.

Of Jupyter's five channels two are connected, `shell` and `iopub`: on the others a kernel could only send what nobody
reads. At most one message is in memory at a time, with at most `MAX_MESSAGE_BYTES` bytes in all of its frames and
`MAX_MESSAGE_VALUES` values in their JSON. Measured, the worst message takes 110 MiB while it is parsed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from queue import Empty
from typing import Any, cast

from jupyter_client.asynchronous.client import AsyncKernelClient
from jupyter_client.manager import AsyncKernelManager
from jupyter_client.session import DELIM

from mlhood.files.untrusted_json import has_at_most
from mlhood.grading.sandbox.limits import MIB
from mlhood.grading.sandbox.zmtp import Connection, MessageTooLarge

MAX_MESSAGE_BYTES = 16 * MIB
MAX_MESSAGE_VALUES = 250_000
SIGNATURE_BYTES = 64  # SHA-256 in hexadecimal
PARTS = 4  # of JSON in a message: header, parent header, metadata, content
START_SECONDS = 300.0
RETRY_SECONDS = 0.01
TOO_LARGE = f"put out more than {MAX_MESSAGE_BYTES // MIB} MiB at once, or too many parts, and was stopped"


class InvalidMessage(Exception):
    """What a kernel sent is not a message of Jupyter's protocol."""


class Channel:
    """A channel of a kernel client (see `jupyter_client.channels.AsyncZMQSocketChannel`).

    Args:
        connection: The connection to the kernel's socket.
        session: Signs and verifies the messages.
        on_too_large: Called when a message exceeds a limit; none is received after that.
    """

    def __init__(self, connection: Connection, session: Any, on_too_large: Callable[[], None]) -> None:
        self._connection = connection
        self._session = session
        self._on_too_large = on_too_large

    async def get_msg(self, timeout: float | None = None) -> dict[str, Any]:
        """Return the next message.

        Raises:
            Empty: There was none within the time limit (seconds).
            Exception: It is no message of Jupyter's protocol; of which kind depends on what is wrong with it.
        """
        try:
            async with asyncio.timeout(timeout):
                frames = await self._connection.receive()
                parts = _json_parts(frames)
        except TimeoutError:
            raise Empty from None
        except MessageTooLarge:
            self._on_too_large()
            raise
        return self._session.deserialize(parts)

    def send(self, message: dict[str, Any]) -> None:
        """Send a message."""
        self._session.send(self, message)

    def send_multipart(self, frames: list[bytes], copy: bool = True) -> None:
        """Send the frames of a message: what `Session.send` calls."""
        self._connection.send(frames)

    def is_alive(self) -> bool:
        """Whether it has not been stopped."""
        return not self._connection.closed

    def stop(self) -> None:
        """Close the connection."""
        self._connection.close()


def _json_parts(frames: list[bytes]) -> list[bytes]:
    """Return the signature and the parts of JSON, without buffers, which nothing here reads."""
    start = frames.index(DELIM) + 1
    signature, *parts = frames[start : start + 1 + PARTS]
    if len(signature) != SIGNATURE_BYTES:  # the session keeps it
        raise InvalidMessage("a signature of another length")
    # together: there is no value in the bytes between them
    if not has_at_most(b"\n".join(parts), MAX_MESSAGE_VALUES):
        raise MessageTooLarge
    return [signature, *parts]


class KernelClient(AsyncKernelClient):
    """A client that is connected to `shell` and `iopub` by `Channel`."""

    async def start_channels(self, *arguments: object, **options: object) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Connect both channels, which waits until the kernel listens.

        Raises:
            OSError: It does not listen in time, or has ended.
        """
        self.allow_stdin = False
        session, manager = self.session, cast(KernelManager, self.parent)
        self._iopub_channel = Channel(await self._connect("iopub", "SUB", b""), session, manager.on_too_large)
        shell = await self._connect("shell", "DEALER", session.bsession)
        self._shell_channel = Channel(shell, session, manager.on_too_large)

    def stop_channels(self) -> None:
        """Close both channels."""
        for channel in (self._shell_channel, self._iopub_channel):
            if channel is not None:
                channel.stop()

    async def _connect(self, name: str, kind: str, identity: bytes) -> Connection:
        path = Path(self._make_url(name).removeprefix("ipc://"))
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                return Connection(path, kind, identity, MAX_MESSAGE_BYTES, START_SECONDS)
            except (FileNotFoundError, ConnectionRefusedError):
                if time.monotonic() > deadline or not await self._async_is_alive():
                    raise
                await asyncio.sleep(RETRY_SECONDS)


class KernelManager(AsyncKernelManager):
    """A manager whose clients are limited, and which has no channel: it ends kernels by signals.

    Attributes:
        on_too_large: Called when a message exceeds a limit; is to end the kernel.
    """

    on_too_large: Callable[[], None]

    def client(self, **options: Any) -> KernelClient:
        """Return a client of the kernel."""
        return KernelClient(**{**self.get_connection_info(session=True), "parent": self, **options})

    def _connect_control_socket(self) -> None:
        """Connect nothing."""
