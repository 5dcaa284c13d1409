"""The server in the student's process: executes requests on the notebook's objects.

Nothing here is trusted, since a submission may replace all of it. The grader believes only the arrays and plain data
that it receives, and compares them itself.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib
import io
import logging
import os
import stat
import sys
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from mlhood.grading.rpc.codec import decode, encode
from mlhood.grading.rpc.guard import CallGuard

MAX_PRINTED = 4000
NOT_DEFINED = "the notebook defines no"
_objects: list[object] = []  # by handle


def register(value: object) -> int:
    """Keep an object that cannot be encoded, and return its handle."""
    _objects.append(value)
    return len(_objects) - 1


def handle_request(request: bytes, namespace: Mapping[str, Any], *, installed: bool = False) -> bytes:
    """Execute one request on the notebook's objects and return the reply.

    A request is a dictionary: `target` (a name of the notebook, `module:name`, or a `Remote`), `method` (a name or
    None), `call` (whether to call it or only to fetch it), `args`, `kwargs`; or `table`, the id of a table. In either
    case, `sources` contains the modules of ours that are not installed in this process, as text (see `loaded`).
    With `guard`, the reply says as `broken` if the call has "changed" an argument or returned memory "shared" with one.
    The reply has `value`, or `error` (type, message, line of the student's code, its number) and the last `printed`
    text.

    Args:
        request: As above.
        namespace: The notebook's names.
        installed: Whether all of our modules are installed in this process, so that `sources` is not used.
    """
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed), _logging_disabled():
        try:
            parts = decode(request, _objects.__getitem__)
            with loaded({} if installed else parts.get("sources", {})):
                guard = CallGuard(parts["args"], parts["kwargs"]) if parts.get("guard") else None
                value = _execute(parts, namespace)
                broken = {"broken": guard.broken(value)} if guard else {}
                reply = encode({"value": value} | broken, register)
        except Exception as error:
            reply = encode({"error": _describe(error), "printed": printed.getvalue()[-MAX_PRINTED:]})
    return reply


@contextlib.contextmanager
def loaded(sources: Mapping[str, str]) -> Iterator[dict[str, ModuleType]]:
    """Execute modules of ours that arrive as text, and let them be imported inside the `with` statement.

    There are no files of them to read. Afterwards neither `sys.modules` nor `linecache` knows them, so the next
    request, which brings its own text, gets new ones.

    Args:
        sources: Texts by the dotted names of the modules; a module that another one imports comes before it.

    Yields:
        The modules by name.

    Raises:
        Exception: Whatever a module raises.
    """
    modules = {name: ModuleType(name) for name in sources}
    before = {name: sys.modules[name] for name in sources if name in sys.modules}
    try:
        for name, module in modules.items():
            sys.modules[name] = module  # dataclasses and imports inside functions look here
            # linecache stores nothing for a file name in angle brackets
            exec(compile(sources[name], f"<{name}>", "exec", dont_inherit=True), vars(module))  # noqa: S102
        yield modules
    finally:
        for name in sources:
            sys.modules.pop(name, None)
        sys.modules.update(before)


@contextlib.contextmanager
def _logging_disabled() -> Iterator[None]:
    """Disable logging: handlers hold the stderr of their creation, so redirecting it does not silence them."""
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(level)


def _execute(request: dict[str, Any], namespace: Mapping[str, Any]) -> object:
    if "table" in request:
        return _table(request["table"], namespace)
    target: Any = request["target"]
    if isinstance(target, str):
        target = _look_up(target, namespace)
    if request["method"] is not None:
        target = getattr(target, request["method"])
    return target(*request["args"], **request["kwargs"]) if request["call"] else target


def _table(table_id: str, namespace: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the notebook's table of that id as plain data; of several, the one that was declared or filled last."""
    from mlhood.measure.table import Table

    tables = [value for value in namespace.values() if isinstance(value, Table) and value.id == table_id]
    return max(tables, key=lambda table: table.changed).to_dict() if tables else None


def _look_up(name: str, namespace: Mapping[str, Any]) -> object:
    module, colon, attribute = name.partition(":")
    if colon:
        return getattr(importlib.import_module(module), attribute)
    if name not in namespace:
        reason = getattr(builtins, "_skipped", {}).get(name)  # of a bare kernel
        raise NameError(f"{NOT_DEFINED} `{name}`{f': {reason}' if reason else ''}")
    return namespace[name]


def _describe(error: Exception) -> dict[str, Any]:
    frames = traceback.extract_tb(error.__traceback__)
    cells = [frame for frame in frames if "ipykernel" in frame.filename or frame.filename.startswith("<ipython")]
    line, number = ((cells[-1].line or "").strip(), cells[-1].lineno) if cells else ("", None)
    return {"type": type(error).__name__, "message": str(error)[:2000], "line": line[:500], "number": number}


def read_file(path: str, limit: int) -> bytes | bool | None:
    """Return the content of a file; None if there is none, and False if it is a special file or larger than `limit`."""
    file = Path(path)
    if not file.exists():
        return None
    return file.is_file() and file.stat().st_size <= limit and file.read_bytes()


def write_fresh(path: str | Path, data: bytes) -> Path:
    """Write a new file in place of whatever has that path, and return the path.

    Student code may have put a pipe there, on which opening would block, or a link to another file.
    """
    path = Path(path)
    path.unlink(missing_ok=True)
    with path.open("xb") as file:
        if hasattr(os, "fchmod"):  # student code may have set a umask that forbids all; the path may be its link by now
            os.fchmod(file.fileno(), stat.S_IMODE(os.fstat(file.fileno()).st_mode) | stat.S_IRUSR)
        file.write(data)
    return path
