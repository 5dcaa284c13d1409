"""The server of the marking page: for one person, on this machine, for as long as the command runs.

1. It listens on 127.0.0.1 only, at a port that the system chooses.
2. A request without the random token of this run in its address gets 403.
3. So does one whose `Host` is not this address: a name of another site that resolves to 127.0.0.1 (DNS rebinding).
4. So does a change whose `Origin` is not this address: a form of another site.
5. What is answered may run only the script of the page itself (its nonce), load nothing, and be framed by nobody.
"""

from __future__ import annotations

import importlib
import json
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from mlhood.errors import MlhoodError
from mlhood.grading.gradebook.gradebook import Gradebook
from mlhood.grading.marking.items import Items, first_unmarked
from mlhood.grading.marking.pages import item_page, overview_page

HOST = "127.0.0.1"
MAX_BODY = 64 << 10
IDLE_SECONDS = 30.0
FORM = "application/x-www-form-urlencoded"
TEXT, HTML, JSON = "text/plain; charset=utf-8", "text/html; charset=utf-8", "application/json"


@dataclass(frozen=True)
class Answer:
    """What a request is answered with."""

    status: int
    body: str
    kind: str = TEXT
    headers: dict[str, str] = field(default_factory=dict)


class MarkingServer(ThreadingHTTPServer):
    """Serves the marking page of a gradebook. Use it in a `with` statement.

    Threads answer requests, since a browser keeps connections open; one thread alone uses the gradebook, in turn.

    Raises:
        GradingError: There is no such gradebook, or it is damaged.
        OutputError: It cannot be read.
    """

    daemon_threads = True

    def __init__(self, gradebook: Path) -> None:
        self.gradebook = gradebook
        self.token = secrets.token_urlsafe(32)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="gradebook")
        try:
            self.items = self._thread.submit(self._open).result()
            super().__init__((HOST, 0), Handler)
        except BaseException:
            self._thread.shutdown()
            raise

    @property
    def authority(self) -> str:
        """The address and the port, as in the header `Host`."""
        return f"{HOST}:{self.server_port}"

    @property
    def address(self) -> str:
        """The address of the overview, with the token."""
        return f"http://{self.authority}/{self.token}/"

    def _open(self) -> Items:
        return Items(Gradebook(self.gradebook, must_exist=True))

    def server_close(self) -> None:
        """Stop listening, end the change that is being stored, and close the gradebook."""
        super().server_close()
        self._thread.submit(self.items.gradebook.close)
        self._thread.shutdown()

    def handle_error(self, request: object, client_address: object) -> None:
        """Print nothing: the browser has closed a connection."""

    # -- requests; each runs in the thread of the gradebook

    def respond(self, work: Callable[..., Answer], *arguments: str) -> Answer:
        """Return the answer of a method below, with the items as they are now."""

        def run() -> Answer:
            self.items.refresh()
            return work(*arguments)

        return self._thread.submit(run).result()

    def overview(self) -> Answer:
        """Return the overview."""
        # the first answer needs the course, which takes seconds to load: begin while the person reads
        self._thread.submit(importlib.import_module, "mlhood.grading.notebooks.answers")
        nonce = secrets.token_urlsafe(16)
        return _page(overview_page(self.items.all, str(self.gradebook), nonce), nonce)

    def item(self, key: str, error: str = "") -> Answer:
        """Return the page of an item."""
        item = self.items.find(key)
        if item is None:
            return Answer(404, "this answer is no longer to be marked, as the student's file or result has changed")
        nonce = secrets.token_urlsafe(16)
        page = item_page(self.items.all, key, self.items.written(item), nonce, error)
        return _page(page, nonce, 400 if error else 200)

    def save(self, key: str, points: str, comment: str) -> Answer:
        """Store points and a comment for the page's script."""
        try:
            item = self.items.save(key, points, comment)
        except ValueError as error:
            return _json(400, error=str(error))
        return _json(200, points=item.points, most=item.most)

    def submit(self, key: str, points: str, comment: str) -> Answer:
        """Store points and a comment from a form without scripts, and go to the next item."""
        try:
            self.items.save(key, points, comment)
        except ValueError as error:
            return self.item(key, str(error))
        keys = list(self.items.all)
        following = keys[keys.index(key) + 1 :]
        return Answer(303, "", headers={"Location": following[0] if following else "../"})

    def unmarked(self) -> Answer:
        """Go to the first item without points."""
        key = first_unmarked(self.items.all.items())
        return Answer(303, "", headers={"Location": f"mark/{key}" if key else "./"})


def _page(html: str, nonce: str, status: int = 200) -> Answer:
    policy = (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self';"
        " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )
    return Answer(status, html, HTML, {"Content-Security-Policy": policy})


def _json(status: int, **facts: object) -> Answer:
    return Answer(status, json.dumps(facts), JSON)


HEADERS = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",  # without any, a browser would not tell the origin of a form
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Refused(Exception):
    """A request is not answered; with the status and the reason."""


class Handler(BaseHTTPRequestHandler):
    """Checks a request, and passes it to the server."""

    server: MarkingServer  # pyright: ignore[reportIncompatibleVariableOverride] (its base declares the base's)
    timeout = IDLE_SECONDS
    server_version, sys_version = "mlhood", ""

    def do_GET(self) -> None:
        """Answer with a page."""
        self._answer(self._get)

    def do_POST(self) -> None:
        """Store points."""
        self._answer(self._post)

    def _answer(self, work: Callable[[list[str]], Answer]) -> None:
        try:
            answer = work(self._checked_path())
        except Refused as refused:
            answer = Answer(*refused.args)
        except Exception as error:  # whatever has failed, the page must not say that anything was saved
            reason = error.one_line() if isinstance(error, MlhoodError) else f"{type(error).__name__}: {error}"
            answer = _json(500, error=reason) if self.command == "POST" else Answer(500, reason)
        self._send(answer)

    def _checked_path(self) -> list[str]:
        """Return the parts of the path after the token."""
        _, token, *path = [*self.path.partition("?")[0].split("/"), ""][:8]
        if not secrets.compare_digest(token.encode(errors="replace"), self.server.token.encode()):
            raise Refused(403, "open the address that `mlhood marks --open` has printed")
        if self.headers.get_all("Host") != [self.server.authority]:
            raise Refused(403, f"this page is at {self.server.authority} only")
        return [part for part in path if part]

    def _get(self, path: list[str]) -> Answer:
        match path:
            case []:
                return self.server.respond(self.server.overview)
            case ["next"]:
                return self.server.respond(self.server.unmarked)
            case ["mark", key]:
                return self.server.respond(self.server.item, key)
        raise Refused(404, "there is no such page")

    def _post(self, path: list[str]) -> Answer:
        if self.headers.get_all("Origin") != [f"http://{self.server.authority}"]:
            raise Refused(403, "only the page itself may store points")
        form = self._form()
        match path:
            case ["save", key]:
                return self.server.respond(self.server.save, key, *form)
            case ["mark", key]:
                return self.server.respond(self.server.submit, key, *form)
        raise Refused(404, "there is no such page")

    def _form(self) -> tuple[str, str]:
        """Return points and comment."""
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()) or int(length[:9]) > MAX_BODY:
            raise Refused(413, f"a form of at most {MAX_BODY:,} bytes is expected")
        if self.headers.get_content_type() != FORM:
            raise Refused(415, f"{FORM} is expected")
        text = self.rfile.read(int(length)).decode("utf-8", "replace")
        try:
            fields = parse_qs(text, keep_blank_values=True, max_num_fields=4)
        except ValueError as error:
            raise Refused(400, str(error)) from None
        points, comment = (fields.get(name, [""])[-1] for name in ("points", "comment"))
        return points, comment.replace("\r\n", "\n")

    def _send(self, answer: Answer) -> None:
        body = answer.body.encode("utf-8", "replace")
        self.send_response(answer.status)
        headers = {"Content-Type": answer.kind, "Content-Length": str(len(body)), **HEADERS, **answer.headers}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer a request that is none, or has another method, without a page of the library."""
        self._send(Answer(code, message or "not a request"))

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing: addresses contain the token."""
