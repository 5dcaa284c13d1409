"""The command: serve the page until Ctrl-C, and open it in a browser."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import webbrowser
from collections.abc import Callable, Iterator
from html import escape
from pathlib import Path

from filelock import FileLock, Timeout

from mlhood.errors import GradingError, OutputError
from mlhood.grading.gradebook.gradebook import Gradebook
from mlhood.grading.marking.server import serving

LOCK = ".marks.lock"
REDIRECT = "marking.html"  # beside the gradebook


def serve(gradebook: Path, echo: Callable[[str], object] = print, *, browse: bool = True) -> None:
    """Serve the marking page of a gradebook until Ctrl-C.

    Args:
        echo: Called with the address, and at the end with what is stored.
        browse: Whether to open the page in the user's browser.

    Raises:
        GradingError: There is no such gradebook, or it is damaged.
        OutputError: It cannot be written, or another call serves its page.
    """
    with _only_server(gradebook), Gradebook(gradebook, must_exist=True) as book, contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(book, echo, browse))
    echo(f"ended; every point that the page called saved is in {gradebook}")


async def _serve(gradebook: Gradebook, echo: Callable[[str], object], browse: bool) -> None:
    async with serving(gradebook) as server:
        with _redirect(gradebook.path, server.address) as page:
            if browse:  # in a thread, since a browser in a terminal returns only when it is closed
                threading.Thread(target=webbrowser.open, args=(page.as_uri(),), daemon=True).start()
            echo(f"marking page: {server.address}")
            echo("It is for you alone: whoever has this address can change marks. Press Ctrl-C to end it.")
            await asyncio.Event().wait()


@contextlib.contextmanager
def _only_server(gradebook: Path) -> Iterator[None]:
    """Keep a second server out, whose page would not show the points given on this one."""
    if not gradebook.is_file():
        yield  # the error is that of the gradebook
        return
    try:
        lock = FileLock(gradebook.parent / LOCK, mode=0o600).acquire(blocking=False)
    except Timeout:
        raise GradingError(
            "another call serves the marking page of this gradebook",
            where=gradebook,
            todo="use that page, or end the call with Ctrl-C",
        ) from None
    except OSError as error:
        raise OutputError("the gradebook's folder cannot be written", where=gradebook, got=str(error)) from None
    with lock:
        yield


@contextlib.contextmanager
def _redirect(gradebook: Path, address: str) -> Iterator[Path]:
    """Write a page, readable by this user only, that leads to the address.

    A browser gets its name as an argument, which all users of this machine can see; the address has the token.
    """
    page = gradebook.parent / REDIRECT
    page.unlink(missing_ok=True)
    handle = os.open(page, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            link = escape(address, quote=True)
            file.write(f'<!DOCTYPE html><meta http-equiv="refresh" content="0; url={link}"><a href="{link}">marks</a>')
        yield page.resolve()
    finally:
        page.unlink(missing_ok=True)
