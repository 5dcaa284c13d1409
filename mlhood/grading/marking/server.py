"""The server of the marking page: for one person, on this machine, until Ctrl-C.

1. It listens on 127.0.0.1 only, at a port that the system chooses.
2. A request without the random token of this run in its address gets 403.
3. So does one whose `Host` is not this address: a name of another site that resolves to 127.0.0.1 (DNS rebinding).
4. So does a change whose `Origin` is not this address: a form of another site.
5. What is answered may run only the script of the page itself (its nonce), load nothing, and be framed by nobody.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import secrets
import threading
import webbrowser
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, HTTPError, RequestHandler

from mlhood.errors import GradingError, MlhoodError, OutputError
from mlhood.grading.gradebook.gradebook import Gradebook
from mlhood.grading.marking.items import Items, first_unmarked
from mlhood.grading.marking.pages import item_page, overview_page

HOST = "127.0.0.1"
MAX_BODY = 64 << 10
IDLE_SECONDS = 30.0
FORM = "application/x-www-form-urlencoded"
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",  # without any, a browser would not tell the origin of a form
    "Server": "mlhood",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
LOCK = ".marks.lock"
REDIRECT = "marking.html"  # beside the gradebook


@dataclass(frozen=True)
class MarkingServer:
    """The items that a server shows, its address and port (as in the header `Host`), and the token of this run."""

    items: Items
    authority: str
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32))

    @property
    def address(self) -> str:
        """The address of the overview, with the token."""
        return f"http://{self.authority}/{self.token}/"


@asynccontextmanager
async def serving(gradebook: Gradebook) -> AsyncIterator[MarkingServer]:
    """Serve the marking page of a gradebook, in this thread, which must be the one that has opened it."""
    sockets = bind_sockets(0, HOST)
    marking = MarkingServer(Items(gradebook), f"{HOST}:{sockets[0].getsockname()[1]}")
    pages = [("/[^/]*/", Overview), ("/[^/]*/next", Next), ("/[^/]*/mark/([^/]+)", Mark), ("/[^/]*/save/([^/]+)", Save)]
    # it logs nothing: addresses contain the token
    application = Application(pages, default_handler_class=Page, log_function=lambda handler: None, marking=marking)
    server = HTTPServer(
        application, max_body_size=MAX_BODY, idle_connection_timeout=IDLE_SECONDS, body_timeout=IDLE_SECONDS
    )
    server.add_sockets(sockets)
    # the first answer needs the course, which takes seconds to load: begin while the person reads
    asyncio.get_running_loop().run_in_executor(None, importlib.import_module, "mlhood.grading.notebooks.questions")
    try:
        yield marking
    finally:
        server.stop()
        await server.close_all_connections()


class Page(RequestHandler):
    """Checks a request; refuses an address that no other class answers."""

    def set_default_headers(self) -> None:
        """Set what every answer has."""
        for name, value in HEADERS.items():
            self.set_header(name, value)

    def prepare(self) -> None:
        """Refuse a request that is not of the page itself, and read the items as they are now."""
        self.marking: MarkingServer = self.settings["marking"]
        self.items = self.marking.items
        headers, token = self.request.headers, self.request.path.split("/")[1:2]
        if not secrets.compare_digest("".join(token).encode(errors="replace"), self.marking.token.encode()):
            raise HTTPError(403, "open the address that `mlhood marks --open` has printed")
        if headers.get_list("Host") != [self.marking.authority]:
            raise HTTPError(403, f"this page is at {self.marking.authority} only")
        if self.request.method == "POST" and headers.get_list("Origin") != [f"http://{self.marking.authority}"]:
            raise HTTPError(403, "only the page itself may store points")
        if self.request.method == "POST" and headers.get("Content-Type", "").partition(";")[0] != FORM:
            raise HTTPError(415, f"{FORM} is expected")
        if type(self) is Page:
            raise HTTPError(404, "there is no such page")
        self.items.refresh()

    def show(self, page: Callable[[str], str]) -> None:
        """Answer with a page, a function of the nonce of its script and style."""
        nonce = secrets.token_urlsafe(16)
        policy = (
            f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self';"
            " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
        )
        self.set_header("Content-Security-Policy", policy)
        self.finish(page(nonce))

    def form(self) -> tuple[str, str]:
        """Return points and comment."""
        points, comment = (self.get_body_argument(name, "", strip=False) for name in ("points", "comment"))
        return points, comment.replace("\r\n", "\n")

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Say what has failed, whatever it is: the page must not say that anything was saved."""
        error = kwargs["exc_info"][1]
        reason = error.one_line() if isinstance(error, MlhoodError) else f"{type(error).__name__}: {error}"
        if isinstance(error, HTTPError):
            reason = error.log_message or self._reason
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish({"error": reason} if isinstance(self, Save) else reason)

    def log_exception(self, typ: object, value: object, tb: object) -> None:
        """Print nothing."""


class Overview(Page):
    """The list of questions and undecided tasks."""

    def get(self) -> None:
        """Answer with the page."""
        self.show(lambda nonce: overview_page(self.items.all, str(self.items.gradebook.path), nonce))


class Next(Page):
    """The first item without points."""

    def get(self) -> None:
        """Go to its page."""
        key = first_unmarked(self.items.all.items())
        self.redirect(f"mark/{key}" if key else "./", status=303)


class Mark(Page):
    """The page of an item."""

    def get(self, key: str, error: str = "") -> None:
        """Answer with the page."""
        item = self.items.all.get(key)
        if item is None:
            raise HTTPError(404, "this answer is no longer to be marked, as the student's file or result has changed")
        self.show(lambda nonce: item_page(self.items.all, key, self.items.written(item), nonce, error))

    def post(self, key: str) -> None:
        """Store points and a comment from a form without scripts, and go to the next item."""
        try:
            self.items.save(key, *self.form())
        except ValueError as error:
            self.set_status(400)
            return self.get(key, str(error))
        keys = list(self.items.all)
        following = keys[keys.index(key) + 1 :]
        return self.redirect(following[0] if following else "../", status=303)


class Save(Page):
    """What the page's script calls."""

    def post(self, key: str) -> None:
        """Store points and a comment."""
        try:
            item = self.items.save(key, *self.form())
        except ValueError as error:
            self.set_status(400)
            self.finish({"error": str(error)})
        else:
            self.finish({"points": item.points, "most": item.most})


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
