"""The student's end of the wire: answers requests in the process that holds the student's objects.

Nothing here is trusted: a submission may have replaced all of it. The other end believes only what arrays and plain
data say, and compares them itself.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import logging
import traceback
from collections.abc import Iterator, Mapping
from typing import Any

from mlhood.grading.rpc.call_recorder import noting
from mlhood.grading.rpc.codec import Message, decode, encode
from mlhood.grading.rpc.file_channel import Mailbox

MAX_PRINTED = 4000
_kept: list[object] = []


def keep(value: object) -> int:
    """Hold on to an object that may not cross, and return its number."""
    _kept.append(value)
    return len(_kept) - 1


def answer(request: Message, namespace: Mapping[str, Any]) -> Message:
    """Carry out one request on the student's objects.

    A request is a dictionary: `target` (a name of the notebook, `module:name`, or a `Remote`), `method` (a name or
    None), `call` (whether to call it or only to fetch it), `args`, `kwargs`; or `table`, the id of a table; with
    either, `watch` may name functions whose calls from the student's code are noted. The reply has `value` and
    `leaned` (of `watch`, what was called), or `error` (type, message, line of the student's code) and what was printed
    meanwhile.
    """
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed), _no_logging():
        try:
            wanted = decode(request, _kept.__getitem__)
            with noting(wanted.get("watch", ()), namespace) as used:
                value = _carry_out(wanted, namespace)
            reply = encode({"value": value, "leaned": sorted(used)}, keep)
        except Exception as error:
            reply = encode({"error": _describe(error), "printed": printed.getvalue()[-MAX_PRINTED:]})
    return reply


@contextlib.contextmanager
def _no_logging() -> Iterator[None]:
    """Loggers keep the stderr that they were born with, so redirecting it does not quieten them."""
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(level)


def serve(folder: str, number: int, namespace: Mapping[str, Any] | None = None) -> None:
    """Answer request N of a mailbox with reply N; about the notebook's names if no others are given."""
    names = _notebook_names() if namespace is None else namespace
    mailbox = Mailbox(folder)
    mailbox.post("reply", number, answer(mailbox.collect("request", number), names))


def _notebook_names() -> Mapping[str, Any]:
    from IPython.core.getipython import get_ipython

    shell: Any = get_ipython()
    return shell.user_ns


def _carry_out(request: dict[str, Any], namespace: Mapping[str, Any]) -> object:
    if "table" in request:
        return _table(request["table"], namespace)
    target: Any = request["target"]
    if isinstance(target, str):
        target = _look_up(target, namespace)
    if request["method"] is not None:
        target = getattr(target, request["method"])
    return target(*request["args"], **request["kwargs"]) if request["call"] else target


def _table(table_id: str, namespace: Mapping[str, Any]) -> dict[str, Any] | None:
    """The notebook's table of that id as plain data; of several, the one with the most cells filled."""
    from mlhood.measure.table import Table

    found = [value for value in namespace.values() if isinstance(value, Table) and value.id == table_id]
    return min(found, key=lambda table: len(table.missing)).to_dict() if found else None


def _look_up(name: str, namespace: Mapping[str, Any]) -> object:
    module, colon, attribute = name.partition(":")
    if colon:
        return getattr(importlib.import_module(module), attribute)
    if name not in namespace:
        raise NameError(f"the notebook defines no `{name}`")
    return namespace[name]


def _describe(error: Exception) -> dict[str, str]:
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "ipykernel" in frame.filename or frame.filename.startswith("<ipython")]
    line = (own[-1].line or "") if own else ""
    return {"type": type(error).__name__, "message": str(error)[:2000], "line": line.strip()}
