"""Run one of our own functions on hostile data, such as a student's ONNX file, in a process that may crash or hang."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from typing import Any

from mlhood.grading.rpc.codec import WireError, decode, encode
from mlhood.grading.rpc.file_channel import Mailbox

SERVE = "import sys; from mlhood.grading.rpc.server import serve; serve(sys.argv[1], 1, {})"


class IsolatedFailure(Exception):
    """The function raised an error, crashed or took too long."""


def run_isolated(target: str, *args: object, seconds: float = 60.0) -> Any:
    """Call `module:function` of ours in a fresh process.

    Args:
        target: What to call.
        args: Plain data, bytes and arrays.
        seconds: Time limit.

    Raises:
        IsolatedFailure: It raised an error, crashed or took too long.
    """
    with tempfile.TemporaryDirectory(prefix="mlhood-", ignore_cleanup_errors=True) as folder:
        mailbox = Mailbox(folder)
        request = {"target": target, "method": None, "call": True, "args": args, "kwargs": {}}
        mailbox.post("request", 1, encode(request))
        try:
            subprocess.run(
                [sys.executable, "-c", SERVE, folder],
                cwd=folder,
                timeout=seconds,
                check=True,
                stdin=subprocess.DEVNULL,
                capture_output=True,
            )
            reply = decode(mailbox.collect("reply", 1))
        except subprocess.TimeoutExpired:
            raise IsolatedFailure(f"it takes more than {seconds:g} seconds") from None
        except subprocess.CalledProcessError as error:
            raise IsolatedFailure(f"it crashes the program that reads it (exit code {error.returncode})") from None
        except WireError as error:
            raise IsolatedFailure(str(error)) from None
    if "error" in reply:
        raise IsolatedFailure(reply["error"]["message"])
    return reply["value"]
