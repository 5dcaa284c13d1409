"""The marking page over a socket: who may use it, what it stores, and what a hostile answer does to it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from html import escape
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlencode

import pytest

from mlhood.grading.checks.marks import ManualMark
from mlhood.grading.gradebook.gradebook import Gradebook, MarkedItem
from mlhood.grading.marking import pages
from mlhood.grading.marking.server import FORM, MAX_BODY, MarkingServer
from mlhood.grading.notebooks import questions
from mlhood.grading.notebooks.questions import QuestionText, RubricRow
from tests.grading.marking.marked_class import CODE, FORGED, GIVEN, REASON, marked_class, record_of, served, submit
from tests.grading.reports import attacks
from tests.waiting import PATIENCE


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    text: str


class Client:
    """Sends requests to the server, by default those of its own page."""

    def __init__(self, server: MarkingServer) -> None:
        self.server = server

    def request(self, method: str, path: str, body: str = "", **headers: str | None) -> Reply:
        defaults = {"Host": self.server.authority, "Content-Length": str(len(body.encode()))}
        if method == "POST":
            defaults |= {"Origin": f"http://{self.server.authority}", "Content-Type": FORM}
        connection = HTTPConnection(self.server.authority, timeout=PATIENCE)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in (defaults | {key.replace("_", "-"): value for key, value in headers.items()}).items():
                if value is not None:
                    connection.putheader(name, value)
            connection.endheaders(body.encode())
            reply = connection.getresponse()
            return Reply(reply.status, dict(reply.getheaders()), reply.read().decode())
        finally:
            connection.close()

    def get(self, path: str = "", **headers: str | None) -> Reply:
        return self.request("GET", f"/{self.server.token}/{path}", **headers)

    def post(self, path: str, points: str = "", comment: str = "", **headers: str | None) -> Reply:
        body = urlencode({"points": points, "comment": comment})
        return self.request("POST", f"/{self.server.token}/{path}", body, **headers)

    def item_keys(self) -> dict[tuple[str, str], str]:
        """Return the keys of the items by question and student, in the order of the page."""
        self.get()
        return {(item.id, item.student): key for key, item in self.server.items.all.items()}


@pytest.fixture
def book(tmp_path) -> Path:
    return marked_class(tmp_path)


@pytest.fixture
def client(book):
    with served(book) as server:
        yield Client(server)


def test_without_the_token_every_request_is_forbidden(client, book):
    key = client.item_keys()["P1.4", "ada"]
    token = client.server.token
    for path in (
        "/",
        "*",
        "/favicon.ico",
        f"/{token[:-1]}/",
        f"/{token}x/mark/{key}",
        "/%C3%A9/",
        "/%00/",
    ):
        for method in ("GET", "POST"):
            reply = client.request(method, path, urlencode({"points": "1", "comment": ""}))
            assert (reply.status, token in reply.text) == (403, False), path
    assert client.request("POST", f"/x/save/{key}", "points=1").status == 403
    assert record_of(book, "ada").manual_marks == {}
    assert client.server.authority.startswith("127.0.0.1:")
    assert len(token) > 40


@pytest.mark.parametrize(
    "host", [None, "evil.example", "localhost:{port}", "127.0.0.1", "127.0.0.1:1", "127.0.0.1:{port}.x"]
)
def test_a_name_of_another_site_is_forbidden(client, book, host):
    key = client.item_keys()["P1.4", "ada"]
    host = host and host.format(port=client.server.authority.partition(":")[2])
    refused = 403 if host else 400
    assert client.get(Host=host).status == refused
    assert client.post(f"save/{key}", "1", Host=host).status == refused
    assert record_of(book, "ada").manual_marks == {}


@pytest.mark.parametrize("origin", [None, "null", "http://evil.example", "https://{authority}", "http://127.0.0.1:1"])
def test_another_site_cannot_store_points(client, book, origin):
    keys = client.item_keys()
    origin = origin and origin.format(authority=client.server.authority)
    for action in ("save", "mark"):
        assert client.post(f"{action}/{keys['P1.4', 'ada']}", "1", Origin=origin).status == 403
    assert record_of(book, "ada").manual_marks == {}


def test_points_are_stored_at_each_key(client, book):
    keys = client.item_keys()
    assert list(keys) == [("P1.2", "ada"), ("P1.2", "bob"), ("P1.4", "ada"), ("P1.4", "bob")]
    question, task = keys["P1.4", "ada"], keys["P1.2", "ada"]
    for points, stored in (("4", 4), ("4.", 4), ("4.5", 4.5), ("3,5", 3.5)):
        reply = client.post(f"save/{question}", points)
        assert (reply.status, json.loads(reply.text)) == (200, {"points": stored, "most": 5})
        assert record_of(book, "ada").manual_marks == {"P1.4": ManualMark(stored)}
    for points, score in (("1", 1), ("10", 10)):
        assert client.post(f"save/{task}", points, "reads a\r\nfile").status == 200
        record = record_of(book, "ada")
        assert record.tasks[1].decision == ManualMark(points=score, comment="reads a\nfile")
        assert record.score == 4 + score + 4 + 3.5
    assert 'value="10"' in client.get(f"mark/{task}").text
    assert "2 of 4 marked" in client.get().text
    assert client.get("next").headers["Location"] == f"mark/{keys['P1.2', 'bob']}"
    for key in (question, task):
        assert client.post(f"save/{key}", "").status == 200
    assert (record_of(book, "ada").manual_marks, record_of(book, "ada").undecided[0].id) == ({}, "P1.2")


@pytest.mark.parametrize(
    ("points", "comment", "reason"),
    [
        ("6", "", "6 points for P1.4 are not within 0 and 5"),
        ("-1", "", "-1 points for P1.4"),
        ("nan", "", "nan points"),
        ("inf", "", "inf points"),
        ("1e9", "", "1e9 points"),
        ("x", "", "'x' is not a number of points"),
        ("", "good", "a comment needs points"),
        ("3", "x" * 2001, "the comment is longer than 2,000 characters"),
    ],
)
def test_what_cannot_be_stored_is_said_and_changes_nothing(client, book, points, comment, reason):
    key = client.item_keys()["P1.4", "ada"]
    client.post(f"save/{key}", "2", "before")
    reply = client.post(f"save/{key}", points, comment)
    assert reply.status == 400
    assert reason in json.loads(reply.text)["error"]
    page = client.post(f"mark/{key}", points, comment)
    assert page.status == 400
    assert "✗ NOT SAVED: " in page.text
    assert record_of(book, "ada").manual_marks["P1.4"] == ManualMark(2, "before")


def test_without_scripts_it_is_a_form(client, book):
    keys = list(client.item_keys().values())
    assert client.post(f"mark/{keys[0]}", "7").headers["Location"] == keys[1]
    assert client.post(f"mark/{keys[-1]}", "1").headers["Location"] == "../"
    assert (record_of(book, "ada").tasks[1].earned, record_of(book, "bob").bonus) == (7, 1)


def test_requests_that_are_none_of_the_page(client, book):
    key = client.item_keys()["P1.4", "ada"]
    assert client.post(f"save/{key}", Content_Type="text/plain").status == 415
    for length in (str(MAX_BODY + 1), "-1"):  # no body follows: the server closes the connection without reading any
        refused = client.request("POST", f"/{client.server.token}/save/{key}", Content_Length=length)
        assert refused.status == 400
    assert client.post("save/unknown", "1").status == 400
    assert [client.get(path).status for path in ("mark/unknown", "save", "mark/a/b")] == [404] * 3
    for method in ("PUT", "DELETE", "OPTIONS", "TRACE"):
        assert client.request(method, f"/{client.server.token}/").status == 405
    assert record_of(book, "ada").manual_marks == {}


def test_a_hostile_answer_is_text(client):
    nonces = set()
    for (question, student), key in client.item_keys().items():
        if student != "bob":
            continue
        reply = client.get(f"mark/{key}")
        (nonce,) = re.findall(r"script-src 'nonce-([^']+)'", reply.headers["Content-Security-Policy"])
        nonces.add(nonce)
        policy = reply.headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; ")
        assert "unsafe" not in policy
        tags = re.findall(r"<[a-zA-Z][^>]*>", reply.text)
        assert [tag for tag in tags if tag.startswith(("<script", "<style"))] == [
            f'<style nonce="{nonce}">',
            f'<script nonce="{nonce}">',
        ]
        assert "owned" not in "".join(tags)
        assert attacks.SERVER not in "".join(tags)
        assert not re.search(r"<(img|iframe|svg|object|meta http|base|template|i>)", reply.text)
        assert reply.text.count("<form") == reply.text.count("</form>") == 1
        assert "&lt;script&gt;document.title" in reply.text, question
        assert "\u202e" not in reply.text
    assert len(nonces) == 2
    for header, value in {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}.items():
        assert client.get().headers[header] == client.request("GET", "/").headers[header] == value


def test_a_page_has_the_answer_and_what_it_is_marked_by(client, monkeypatch):
    keys = client.item_keys()
    text = QuestionText("Say `it`.", (RubricRow("it is <even>", 2.5),))
    monkeypatch.setattr(questions, "synced_questions", lambda project: {"P1.4": text})
    page = client.get(f"mark/{keys['P1.4', 'ada']}").text
    assert '<span class="line">Because.</span>' in page
    assert '<tr><td>it is &lt;even&gt;</td><td class="points">2.5</td></tr>' in page
    assert "Say <code>it</code>." in page
    monkeypatch.setattr(questions, "synced_questions", lambda project: {})
    assert "<p>Why?</p>" in client.get(f"mark/{keys['P1.4', 'ada']}").text
    page = client.get(f"mark/{keys['P1.2', 'ada']}").text
    assert f"<p>{REASON}</p>".replace("`run`", "<code>run</code>") in page
    assert "What the checks found: 4 of 10" in page
    for key, what in pages.KEYS:
        assert what in page, key


def test_all_code_that_is_not_the_courses_is_shown_whatever_its_label_says(client):
    page = client.get(f"mark/{client.item_keys()['P1.2', 'ada']}").text
    cells = dict(re.findall(r"<h3>(Cell \d+)</h3>\s*<pre[^>]*>(.*?)</pre>", page, re.DOTALL))
    lines = {cell: re.findall(r'<span class="([^"]*)">(.*?)</span>', text) for cell, text in cells.items()}
    assert lines == {
        "Cell 1": [("line", CODE.split("\n")[0]), ("line rare", "    exec(text)"), ("line", "    return text")],
        "Cell 3": [("line", "mine = &#39;&lt;b&gt;&#39;")],
        "Cell 4": [("line", FORGED)],
    }
    assert escape(GIVEN.splitlines()[0]) not in page


def test_a_decision_does_not_move_to_a_file_that_replaces_the_submission(client, book):
    old = client.item_keys()["P1.2", "ada"]
    client.post(f"save/{old}", "9")
    submit(book.parent, "ada", "Because.", CODE + "\n# changed")
    reply = client.post(f"save/{old}", "8")
    assert (reply.status, client.get(f"mark/{old}").status) == (400, 404)
    assert "no longer to be marked" in json.loads(reply.text)["error"]
    assert record_of(book, "ada").tasks[1].earned == 4
    new = client.item_keys()["P1.2", "ada"]
    page = client.get(f"mark/{new}").text
    assert 'value=""' in page
    with Gradebook(book) as theirs:  # as `mlhood marks --read` does meanwhile
        theirs.put_manual_marks({MarkedItem("ada", "P1.4"): ManualMark(3.5)})
    assert 'value="3.5"' in client.get(f"mark/{client.item_keys()['P1.4', 'ada']}").text


def test_a_file_that_cannot_be_read_is_said(client, book):
    submit(book.parent, "carl", "x", undecided=False)
    (book.parent / "submissions" / f"{record_of(book, 'carl').submission.sha256}.ipynb").write_text("{")
    keys = client.item_keys()
    assert ("P1.2", "carl") not in keys
    assert "The submitted file cannot be read." in client.get(f"mark/{keys['P1.4', 'carl']}").text


def test_a_gradebook_that_cannot_be_written_is_an_error_on_the_page(client, book, monkeypatch):
    key = client.item_keys()["P1.4", "ada"]
    monkeypatch.setattr(Gradebook, "put_manual_marks", lambda *given: 1 / 0)
    reply = client.post(f"save/{key}", "1")
    assert (reply.status, "ZeroDivisionError" in json.loads(reply.text)["error"]) == (500, True)
    assert record_of(book, "ada").manual_marks == {}
