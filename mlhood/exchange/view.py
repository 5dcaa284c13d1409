"""Netron's page for a model, in a notebook or in the user's browser."""

from __future__ import annotations

import contextlib
import logging
import socket
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


def view(model: str | Path | bytes | onnx.ModelProto, port: int | None = None, *, height: int = 600) -> IFrame:
    """Show `model` with Netron in a notebook: serve its page and return a frame with it.

    The server lives as long as the kernel; calling this again with the same port replaces it. The frame shows
    something only while the kernel runs and on its own machine: for a picture that stays, use `render`.

    Args:
        model: What `load` takes.
        port: Where to serve; None takes a free one.
        height: Of the frame, in pixels.

    Raises:
        ExchangeError: The model cannot be read, or the port is in use.
    """
    from IPython.display import IFrame

    address = _serve(model, port)
    return IFrame(f"http://{address[0]}:{address[1]}", width="100%", height=height)


def show(
    model: str | Path | bytes | onnx.ModelProto,
    port: int | None = None,
    *,
    browse: bool = True,
    say: Callable[[str], object] = print,
) -> None:
    """Serve `model` with Netron and wait until Ctrl-C; the command line's form of `view`.

    Args:
        model: What `load` takes.
        port: Where to serve; None takes a free one.
        browse: Open the user's browser.
        say: Told where the page is.

    Raises:
        ExchangeError: The model cannot be read, or the port is in use.
    """
    address = _serve(model, port)
    try:
        url = f"http://{address[0]}:{address[1]}"
        opened = browse and webbrowser.open(url)
        say(f"Netron shows the model at {url}{'' if opened else ' (open it in a browser)'}; Ctrl-C ends it.")
        while netron.status(address):
            time.sleep(0.2)
    except KeyboardInterrupt:
        pass
    finally:
        _stop(address)


def _stop(address: tuple[str, int]) -> None:
    """End the server and wait until it has let go of its port: its thread looks up four times a second."""
    netron.stop(address)
    deadline = time.monotonic() + 2
    while netron.status(address) and time.monotonic() < deadline:
        time.sleep(0.02)


def _serve(model: str | Path | bytes | onnx.ModelProto, port: int | None) -> tuple[str, int]:
    proto = load(model)
    data = Path(model).read_bytes() if isinstance(model, (str, Path)) else proto.SerializeToString()
    if port is not None:
        _stop((_HOST, port))
        _check_port(port)
    try:
        with _without_log():
            # Always the same name: Netron puts it into a link, where a space or a quote would break it.
            host, given = netron.serve("model.onnx", bytearray(data), (_HOST, port))
    except OSError as error:
        raise _in_use(port, error) from error
    return str(host), int(given or 0)


def _check_port(port: int) -> None:
    if not 1 <= port <= 65535:
        raise ExchangeError("not a port", expected="1 to 65535", got=port)
    # Asked before serving, because Windows lets two servers share a port.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(0.5)
        if probe.connect_ex((_HOST, port)) == 0:
            raise _in_use(port, "another program answers there")


def _in_use(port: int | None, got: object) -> ExchangeError:
    return ExchangeError(
        f"port {port} is in use" if port else "no free port to serve from",
        where=f"{_HOST}:{port}" if port else _HOST,
        got=got,
        todo="end the program that uses it, give another port, or give none to have a free one taken",
    )


@contextlib.contextmanager
def _without_log() -> Iterator[None]:
    """Keep Netron from setting up the root logger and from saying where it serves."""
    root, quiet = logging.getLogger(), logging.NullHandler()
    logger = logging.getLogger("netron.server")
    level = logger.level
    root.addHandler(quiet)
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
        root.removeHandler(quiet)
