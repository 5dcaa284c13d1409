"""The program of a student's process: runs cells in IPython, and answers requests about what they define.

    python -P -m mlhood.grading.rpc.cell_runner

Requests come on the standard input: `CELL` and the source of a cell, or `CALL` and a request of
`server.handle_request`. The replies go to the standard output: of a cell, JSON with `execution_count` and `outputs`
(see nbformat); outputs are sent when the cell has ended. Nothing here is trusted, since a submission may replace it.
"""

from __future__ import annotations

import asyncio
import base64
import io
import json
import os
import sys
import tempfile
import zlib
from collections.abc import Callable
from typing import Any

from IPython.core import page
from IPython.core.compilerop import CachingCompiler
from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from traitlets import Type
from traitlets.config import Config

from mlhood.grading.rpc.pipes import answer
from mlhood.grading.rpc.server import handle_request

CELL, CALL = b"C", b"R"
MAX_OUTPUT = 4 << 20  # characters of a cell
CHARACTERS_OF_AN_OUTPUT = 1024  # that it counts as, besides its own


class TooMuchOutput(RuntimeError):
    """A cell puts out more than `MAX_OUTPUT`."""


class _Compiler(CachingCompiler):
    def get_code_name(self, raw_code: str, transformed_code: str, number: int) -> str:
        """Return a name such as those by which libraries recognise the cells of Jupyter."""
        return f"{tempfile.gettempdir()}/ipykernel_{os.getpid()}/{zlib.crc32(raw_code.encode('utf-8', 'replace'))}.py"


class _DisplayHook(DisplayHook):
    shell: Any

    def write_output_prompt(self) -> None: ...

    def write_format_data(self, format_dict: dict[str, Any], md_dict: dict[str, Any] | None = None) -> None:
        result = {"output_type": "execute_result", "execution_count": self.prompt_count}
        self.shell.show(result | {"data": format_dict, "metadata": md_dict or {}})


class _DisplayPublisher(DisplayPublisher):
    shell: Any

    def publish(self, data: Any, metadata: Any = None, source: Any = None, **options: Any) -> None:
        identity, shown = (options.get("transient") or {}).get("display_id"), {"data": data, "metadata": metadata or {}}
        self.shell.show({"output_type": "display_data", **shown}, identity, update=options.get("update", False))

    def clear_output(self, wait: bool = False) -> None:
        self.shell.outputs.clear()


class _Stream(io.TextIOBase):
    """A standard stream whose text becomes an output."""

    encoding, errors = "utf-8", "replace"

    def __init__(self, name: str, print_to: Callable[[str, str], None]) -> None:
        self._name, self._print_to = name, print_to

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        self._print_to(self._name, text)
        return len(text)


class ZMQInteractiveShell(InteractiveShell):
    """IPython's shell, which keeps the outputs of a cell.

    Libraries know by this name, and by an attribute `kernel`, that they are in a notebook rather than in a terminal.
    """

    displayhook_class, display_pub_class = Type(_DisplayHook), Type(_DisplayPublisher)
    compiler_class = Type(_Compiler)
    kernel = None

    def __init__(self, **options: Any) -> None:
        self.outputs: list[dict[str, Any]] = []
        self._displayed: dict[str, dict[str, Any]] = {}  # by display id
        self._size = 0
        self._cells = asyncio.new_event_loop()
        super().__init__(**options)
        self.set_hook("show_in_pager", page.as_hook(page.display_page), 99)

    def init_environment(self) -> None:
        """Let programs neither wait for a reader of pages nor take the pipe for a terminal."""
        os.environ |= {"TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat"}

    def enable_gui(self, gui: Any = None) -> None:
        """Do nothing: there is no display."""

    def enable_matplotlib(self, gui: Any = None) -> Any:
        """Draw figures inline, whatever window or widget the notebook asks for."""
        return super().enable_matplotlib("inline")

    def ask_exit(self) -> None:
        """Do nothing: `exit()` and `quit()` end no notebook."""

    def _showtraceback(self, etype: Any, evalue: Any, stb: list[str]) -> None:
        error = {"ename": str(etype.__name__), "evalue": str(evalue)[:MAX_OUTPUT], "traceback": stb}
        self.outputs.append({"output_type": "error", **error})

    def show(self, output: dict[str, Any], identity: str | None = None, *, update: bool = False) -> None:
        """Add an output, or update the one that the cell has shown under this identity.

        Raises:
            TooMuchOutput: There is too much of it.
        """
        self._count(CHARACTERS_OF_AN_OUTPUT + len(_json(output)))
        if not update:
            self.outputs.append(output)
            self._displayed[identity or ""] = output
        elif identity in self._displayed:
            self._displayed[identity].update(output)

    def print_to(self, name: str, text: str) -> None:
        """Add text to the stream of that name.

        Raises:
            TooMuchOutput: There is too much of it.
        """
        self._count(len(text))
        last = self.outputs[-1] if self.outputs else {}
        if last.get("name") == name:
            last["text"].append(text)
        elif text:
            self._count(CHARACTERS_OF_AN_OUTPUT)
            self.outputs.append({"output_type": "stream", "name": name, "text": [text]})

    def _count(self, characters: int) -> None:
        self._size += characters
        if self._size > MAX_OUTPUT:
            raise TooMuchOutput(f"the cell has put out more than {MAX_OUTPUT >> 20} MiB")

    def reply_to_cell(self, source: str) -> bytes:
        """Run a cell, and return the reply."""
        self.events.trigger("post_execute")  # figures of calls since the last cell are not of this one
        self.outputs, self._displayed, self._size, count = [], {}, 0, self.execution_count
        try:
            self._cells.run_until_complete(self._run(source))
        except BaseException as error:  # of IPython itself, or of what the notebook has replaced
            self._showtraceback(type(error), "", [])
        for output in self.outputs:
            if "text" in output:
                output["text"] = "".join(output["text"])
        return _json({"execution_count": count, "outputs": self.outputs}).encode("utf-8", "replace")

    async def _run(self, source: str) -> None:
        """Run a cell in an event loop, as Jupyter does."""
        cell, error, result = source, None, None
        try:
            cell = self.transform_cell(source)
        except Exception:
            error = sys.exc_info()
        try:
            result = await self.run_cell_async(
                source, store_history=True, transformed_cell=cell, preprocessing_exc_tuple=error
            )
        finally:
            self.events.trigger("post_execute")
            self.events.trigger("post_run_cell", result)


def _json(value: Any) -> str:
    return json.dumps(value, default=_plain, ensure_ascii=False, skipkeys=True)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value.tolist() if hasattr(value, "tolist") else str(value)  # numbers of NumPy


def run(*transformers: Any) -> None:
    """Answer requests until the standard input ends; `transformers` change the syntax trees of cells."""
    config = Config()
    config.HistoryManager.enabled = False
    shell: Any = ZMQInteractiveShell.instance(config=config)
    shell.ast_transformers.extend(transformers)
    sys.stdout, sys.stderr = _Stream("stdout", shell.print_to), _Stream("stderr", shell.print_to)
    _keep_figures_inline()
    sys.path.append("")  # last, so that a file that the notebook writes replaces no library

    def reply_to(request: bytes) -> bytes:
        kind, body = request[:1], request[1:]
        return shell.reply_to_cell(body.decode()) if kind == CELL else handle_request(body, shell.user_ns)

    answer(reply_to)


def _keep_figures_inline() -> None:
    """Let `matplotlib.use` and the like leave the backend as it is, where it was imported in advance."""
    pyplot: Any = sys.modules.get("matplotlib.pyplot")
    if pyplot is not None:
        switch_backend = pyplot.switch_backend

        def switch_if_possible(newbackend: str) -> None:
            try:
                switch_backend(newbackend)
            except ImportError as error:
                print(f"{error}; figures stay inline", file=sys.stderr)

        pyplot.switch_backend = switch_if_possible


if __name__ == "__main__":
    run()
