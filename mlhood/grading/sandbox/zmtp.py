"""ZeroMQ's protocol on a Unix socket, as far as a client of a Jupyter kernel needs it, with limits on what is received.

libzmq limits the size of a frame, but it receives all frames of a message before it delivers the first, and counts a
message once for its queues, however many frames it has. So a message of many frames takes as much of the receiver's
memory as the sender likes. Here the sum is compared with the limit before the memory is allocated, and nothing is
queued: what nobody waits for stays in the sender's memory.

ZMTP 3.0 (rfc.zeromq.org/spec/23), which later versions of libzmq speak to a peer that says so; no encryption (NULL).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from pathlib import Path

GREETING = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
SIGNATURE = slice(0, 1), slice(9, 10)
MAJOR_VERSION = 10
MORE, LONG, COMMAND = 1, 2, 4  # flags of a frame
SUBSCRIBE_TO_ALL = b"\x01"
CHUNK = 1 << 16
MAX_FRAMES = 64
"""Frames of a message: Jupyter's have about seven, and one more for each buffer of a widget."""


class MessageTooLarge(Exception):
    """A message has more bytes or frames than are accepted."""


class NotZmtp(Exception):
    """The peer does not follow the protocol."""


class Connection:
    """A connection to a ZeroMQ socket of one other process. Used in one thread, which runs an asyncio event loop.

    Args:
        path: The Unix socket.
        kind: The type of this end: `DEALER`, or `SUB`, which subscribes to everything.
        identity: The name of this end for a `ROUTER`.
        max_bytes: Largest sum of the frames of a message.
        seconds: Time limit of the handshake.

    Raises:
        OSError: Nobody listens there, or the peer does not answer.
        NotZmtp: It is not a ZeroMQ socket.
    """

    def __init__(self, path: Path, kind: str, identity: bytes, max_bytes: int, seconds: float) -> None:
        self.max_bytes = max_bytes
        self._received = bytearray()
        self._outgoing = bytearray()
        self._frames: list[bytes] = []
        self._ended = False
        self._reading = asyncio.Lock()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.settimeout(seconds)
            self._socket.connect(str(path))
            self._shake_hands(kind, identity)
        except BaseException:
            self._socket.close()
            raise
        self._socket.setblocking(False)
        if kind == "SUB":
            self.send([SUBSCRIBE_TO_ALL])

    def _shake_hands(self, kind: str, identity: bytes) -> None:
        self._socket.sendall(GREETING)
        answer = self._receive_exactly(len(GREETING))
        if [answer[part] for part in SIGNATURE] != [b"\xff", b"\x7f"] or answer[MAJOR_VERSION] < 3:
            raise NotZmtp("no greeting of ZMTP 3")
        properties = _property("Socket-Type", kind.encode()) + _property("Identity", identity)
        self._socket.sendall(_frame(b"\x05READY" + properties, COMMAND))
        flags, size = self._receive_exactly(2)
        if flags != COMMAND or not self._receive_exactly(size).startswith(b"\x05READY"):
            raise NotZmtp("the handshake failed")

    def _receive_exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            if not (more := self._socket.recv(count - len(data))):
                raise NotZmtp("the connection has ended")
            data += more
        return data

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._socket.fileno() < 0

    def close(self) -> None:
        """Close the connection; what is not sent is lost."""
        if not self.closed:
            self._stop_writing()
            self._socket.close()

    def send(self, frames: list[bytes]) -> None:
        """Send a message: as much as the peer takes at once, and the rest while the event loop runs."""
        for i, frame in enumerate(frames):
            self._outgoing += _frame(frame, MORE if i + 1 < len(frames) else 0)
        self._write()

    def _write(self) -> None:
        try:
            while self._outgoing:
                del self._outgoing[: self._socket.send(self._outgoing[:CHUNK])]
        except BlockingIOError:
            asyncio.get_running_loop().add_writer(self._socket, self._write)
            return
        except OSError:  # the peer has ended, and will not answer
            self._outgoing.clear()
        self._stop_writing()

    def _stop_writing(self) -> None:
        with contextlib.suppress(RuntimeError):  # no event loop is running, so nothing is written
            asyncio.get_running_loop().remove_writer(self._socket)

    async def receive(self) -> list[bytes]:
        """Return the frames of the next message. Waits forever if the peer has closed the connection.

        Raises:
            MessageTooLarge: It has more than `max_bytes` bytes or `MAX_FRAMES` frames.
            NotZmtp: The peer does not follow the protocol.
        """
        async with self._reading:
            while not self._parse():
                await self._readable()
                self._read()
            message, self._frames = self._frames, []
            return message

    async def _readable(self) -> None:
        """Wait until something can be read. Nothing is read meanwhile, so nothing is lost if this is cancelled."""
        loop = asyncio.get_running_loop()
        readable = loop.create_future()
        if not self._ended:
            loop.add_reader(self._socket, lambda: readable.done() or readable.set_result(None))
        try:
            await readable
        finally:
            if not self.closed:
                loop.remove_reader(self._socket)

    def _read(self) -> None:
        try:
            data = self._socket.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._ended = not data
        self._received += data

    def _parse(self) -> bool:
        """Move complete frames from the received bytes to the message; return whether that is complete."""
        while (header := self._header()) is not None:
            flags, start, size = header
            if len(self._frames) == MAX_FRAMES or sum(map(len, self._frames)) + size > self.max_bytes:
                raise MessageTooLarge
            if len(self._received) < start + size:
                return False
            frame = bytes(memoryview(self._received)[start : start + size])
            del self._received[: start + size]
            if flags & COMMAND:  # none is expected from a peer of version 3.0, and none matters
                continue
            self._frames.append(frame)
            if not flags & MORE:
                return True
        return False

    def _header(self) -> tuple[int, int, int] | None:
        """Return the next frame's flags, where its body starts and its size; None if they have not been received."""
        start = 9 if self._received and self._received[0] & LONG else 2
        if len(self._received) < start:
            return None
        flags, size = struct.unpack_from(">BQ" if start == 9 else ">BB", self._received)
        if flags > MORE | LONG | COMMAND:
            raise NotZmtp("unknown flags of a frame")
        return flags, start, size


def _frame(body: bytes, flags: int) -> bytes:
    if len(body) < 256:
        return struct.pack(">BB", flags, len(body)) + body
    return struct.pack(">BQ", flags | LONG, len(body)) + body


def _property(name: str, value: bytes) -> bytes:
    return struct.pack(">B", len(name)) + name.encode() + struct.pack(">I", len(value)) + value
