"""Show a model with Netron in a notebook or in the user's browser."""

from __future__ import annotations

import contextlib
import logging
import time
import webbrowser
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import netron
import onnx

from mlhood.errors import ExchangeError
from mlhood.exchange.load import load

if TYPE_CHECKING:
    from IPython.display import IFrame

_HOST = "127.0.0.1"


def view(model: str | Path | bytes | onnx.ModelProto, *, height: int = 600) -> IFrame:
    """Show `model` with Netron in a notebook: serve its page on a free port and return a frame that displays it.

    The server runs until the kernel exits. The frame works only while the kernel runs, and on the kernel's machine; for
    a permanent picture, use `render`.

    Args:
        model: What `load` takes.
        height: Height of the frame in pixels.

    Raises:
        ExchangeError: The model cannot be read.
    """
    from IPython.display import IFrame

    address = _serve(model, None)
    return IFrame(f"http://{address[0]}:{address[1]}", width="100%", height=height)


def show(
    model: str | Path | bytes | onnx.ModelProto,
    port: int | None = None,
    *,
    browse: bool = True,
    echo: Callable[[str], object] = print,
) -> None:
    """Serve `model` with Netron until Ctrl-C; the command line's counterpart of `view`.

    Args:
        model: What `load` takes.
        port: Port to serve on; None picks a free one.
        browse: Open the user's browser.
        echo: Called with a message that contains the page's URL.

    Raises:
        ExchangeError: The model cannot be read, or the port cannot be used.
    """
    address = _serve(model, port)
    try:
        url = f"http://{address[0]}:{address[1]}"
        opened = browse and webbrowser.open(url)
        echo(f"Netron serves the model at {url}{'' if opened else ' (open it in a browser)'}; press Ctrl-C to stop.")
        while netron.status(address):
            time.sleep(0.2)
    except KeyboardInterrupt:
        pass
    finally:
        netron.stop(address)
        while netron.status(address):  # until its thread has released the port
            time.sleep(0.02)


def _serve(model: str | Path | bytes | onnx.ModelProto, port: int | None) -> tuple[str, int]:
    proto = load(model)
    data = Path(model).read_bytes() if isinstance(model, (str, Path)) else proto.SerializeToString()
    try:
        with _silent_netron():
            # a fixed name: Netron puts it into a URL, which a space or a quote would break
            host, actual = netron.serve("model.onnx", bytearray(data), (_HOST, port))
            return str(host), int(actual or 0)
    except OSError as error:
        todo = "stop the program that uses it, choose another port, or omit the port to use a free one"
        raise ExchangeError("the port cannot be used", where=f"{_HOST}:{port}", got=error, todo=todo) from error


@contextlib.contextmanager
def _silent_netron() -> Iterator[None]:
    """Prevent Netron from configuring the root logger and from logging its URL."""
    root, handler = logging.getLogger(), logging.NullHandler()
    logger = logging.getLogger("netron.server")
    level = logger.level
    root.addHandler(handler)
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
        root.removeHandler(handler)
