"""Run a function of ours on untrusted data, such as a student's ONNX file, in a process that may crash or hang."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from typing import Any

from mlhood.grading.rpc.codec import CodecError, decode, encode
from mlhood.grading.rpc.file_channel import FileChannel

SERVE = "import sys; from mlhood.grading.rpc.server import serve; serve(sys.argv[1], 1, {})"


class IsolatedCallError(Exception):
    """The function raised an error, crashed or timed out."""


def run_isolated(target: str, *args: object, seconds: float = 60.0) -> Any:
    """Call `module:function` of ours in a new process.

    Args:
        target: The function.
        args: Plain data, bytes and arrays.
        seconds: Time limit.

    Raises:
        IsolatedCallError: It raised an error, crashed or timed out.
    """
    with tempfile.TemporaryDirectory(prefix="mlhood-", ignore_cleanup_errors=True) as folder:
        channel = FileChannel(folder)
        request = {"target": target, "method": None, "call": True, "args": args, "kwargs": {}}
        channel.send("request", 1, encode(request))
        try:
            subprocess.run(
                [sys.executable, "-c", SERVE, folder],
                cwd=folder,
                timeout=seconds,
                check=True,
                stdin=subprocess.DEVNULL,
                capture_output=True,
            )
            reply = decode(channel.receive("reply", 1))
        except subprocess.TimeoutExpired:
            raise IsolatedCallError(f"it takes more than {seconds:g} seconds") from None
        except subprocess.CalledProcessError as error:
            raise IsolatedCallError(f"it crashes the program that reads it (exit code {error.returncode})") from None
        except CodecError as error:
            raise IsolatedCallError(str(error)) from None
    if "error" in reply:
        raise IsolatedCallError(reply["error"]["message"])
    return reply["value"]
