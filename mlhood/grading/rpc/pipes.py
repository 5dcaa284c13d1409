"""Messages over the pipes to a process that is not trusted: a time limit, a size limit, and a reply to each request.

A message is its length, a number and its bytes. The number of a request is drawn, and its reply has the same one, so a
process cannot answer before it is asked.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import struct
import threading
from collections.abc import Callable
from typing import IO, NoReturn

HEADER = struct.Struct(">QQ")


class NoAnswer(Exception):
    """The process has ended."""


class TooLate(NoAnswer):
    """The process has not answered within the time limit, and was killed."""


class WrongAnswer(NoAnswer):
    """What the process has sent is too large, or no reply to the request; it was killed. The message says which."""


def ask(
    sent: IO[bytes], received: IO[bytes], request: bytes, *, seconds: float, limit: int, kill: Callable[[], object]
) -> bytes:
    """Send a request to a process, and return its reply.

    Args:
        sent: The pipe to the process.
        received: The pipe from it.
        request: What to send.
        seconds: Time limit.
        limit: Largest reply, in bytes.
        kill: Kills the process, so that the pipe from it ends. It is called in another thread, too.

    Raises:
        NoAnswer: There is no reply (see the subclasses).
    """
    number, late = secrets.randbits(64), threading.Event()

    def stop() -> None:
        late.set()
        kill()

    timer = threading.Timer(seconds, stop)
    timer.start()
    try:
        with contextlib.suppress(OSError):  # it has ended, and reading says so
            _write(sent, number, request)
        reply = _read_reply(received, number, limit)
    except WrongAnswer:
        kill()
        raise
    except (OSError, EOFError):
        reply = None
    finally:
        timer.cancel()
    if late.is_set():
        raise TooLate
    if reply is None:
        raise NoAnswer
    return reply


def _read_reply(received: IO[bytes], number: int, limit: int) -> bytes:
    size, answered = _read_header(received)
    if answered != number:
        raise WrongAnswer("sent no reply to what it was asked")
    if size > limit:
        raise WrongAnswer(f"put out more than {limit >> 20} MiB")
    return _read(received, size)


def answer(reply_to: Callable[[bytes], bytes]) -> NoReturn:
    """Answer requests on the standard input by replies on the standard output, and end the process with the input.

    The standard streams become /dev/null, so that nobody else reads requests or writes replies.
    """
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            size, number = _read_header(requests)
            _write(replies, number, reply_to(_read(requests, size)))
    os._exit(0)  # threads of libraries and of the notebook need not be waited for


def _write(file: IO[bytes], number: int, message: bytes) -> None:
    file.write(HEADER.pack(len(message), number))
    file.write(message)
    file.flush()


def _read_header(file: IO[bytes]) -> tuple[int, int]:
    """Return the length and the number of the next message, whose bytes follow."""
    return HEADER.unpack(_read(file, HEADER.size))


def _read(file: IO[bytes], size: int) -> bytes:
    data = file.read(size)
    if len(data) < size:
        raise EOFError
    return data
