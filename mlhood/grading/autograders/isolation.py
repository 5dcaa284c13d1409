"""How a single submission is kept apart where a program of others has called us: as well as the machine allows."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mlhood.grading.execution.kernel import Kernels
from mlhood.grading.sandbox import bubblewrap, other_user

SANDBOX = "the submission runs in a sandbox (bubblewrap)"
OTHER_USER = (
    "the submission runs as another user of this container, which cannot read or change what is the autograder's, "
    "but sees the system and the network; there can be no sandbox"
)
TOGETHER = (
    "the submission runs with the rights of the autograder: the container, made for this one submission, is the only "
    "sandbox"
)


@dataclass(frozen=True)
class Apart:
    """What keeps a submission apart, in words for the instructor, and where its kernel comes from."""

    words: str
    kernels: Kernels | None = None


@contextlib.contextmanager
def apart(hidden: Path | None = None) -> Iterator[Apart]:
    """What keeps most apart here: a sandbox; else, where we are root, another user; else nothing.

    Args:
        hidden: A folder that is closed to all other users: what a submission must not see. Without one there is
            nothing that another user would be kept from.
    """
    if not (reason := bubblewrap.problem()):
        from mlhood.grading.sandbox.pool import Sandboxes

        # one submission: there is nothing to do meanwhile for which its imports should come ahead
        with Sandboxes(imports=(), warm=False) as sandboxes:
            yield Apart(SANDBOX, sandboxes)
        return
    if hidden is None:
        yield Apart(f"{TOGETHER} ({reason})")
        return
    refused = _closed(hidden) or other_user.problem(hidden=[hidden])
    if refused:
        yield Apart(f"{TOGETHER} ({reason}; {refused})")
        return
    from mlhood.grading.sandbox.other_user_kernel import OtherUsers  # where there is no Linux, there is no such module

    yield Apart(f"{OTHER_USER} ({reason})", OtherUsers())


def _closed(folder: Path) -> str:
    """Close a folder to all other users; why that is not possible, in words."""
    if not sys.platform.startswith("linux"):
        return f"another user needs Linux, and this is {sys.platform}"
    try:
        folder.chmod(0o700)
    except OSError as error:
        return f"{folder} cannot be closed to others ({error.strerror})"
    return ""
