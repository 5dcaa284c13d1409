"""Isolate a single submission on a machine that is not ours, as well as that machine allows."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mlhood.grading.execution.kernel import KernelFactory
from mlhood.grading.sandbox import bubblewrap, other_user

SANDBOX = "the submission runs in a sandbox (bubblewrap)"
OTHER_USER = (
    "the submission runs as another user of this container, which cannot read or change the autograder's files, "
    "but has access to the system and the network; no sandbox is available"
)
NOT_ISOLATED = (
    "the submission runs with the rights of the autograder: the container, made for this one submission, is the only "
    "sandbox"
)


@dataclass(frozen=True)
class Isolation:
    """How a submission is isolated, described for the instructor, and where its kernel comes from."""

    description: str
    kernels: KernelFactory | None = None


@contextlib.contextmanager
def isolation(hidden: Path | None = None) -> Iterator[Isolation]:
    """Yield the strongest isolation here: a sandbox; else, if we are root, another user; else none.

    Args:
        hidden: A folder that is closed to all other users: what a submission must not see. Without one there is
            nothing that another user would be kept from.
    """
    if not (reason := bubblewrap.problem()):
        from mlhood.grading.sandbox.pool import SandboxPool

        # for one submission there is nothing to do during which another sandbox could warm up
        with SandboxPool(imports=(), prewarm=False) as sandboxes:
            yield Isolation(SANDBOX, sandboxes)
        return
    if hidden is None:
        yield Isolation(f"{NOT_ISOLATED} ({reason})")
        return
    problem = _close(hidden) or other_user.problem(hidden=[hidden])
    if problem:
        yield Isolation(f"{NOT_ISOLATED} ({reason}; {problem})")
        return
    from mlhood.grading.sandbox.other_user_kernel import OtherUsers  # the module needs Linux

    yield Isolation(f"{OTHER_USER} ({reason})", OtherUsers())


def _close(folder: Path) -> str:
    """Close a folder to all other users; return why that is not possible, if so."""
    if not sys.platform.startswith("linux"):
        return f"another user needs Linux, and this is {sys.platform}"
    try:
        folder.chmod(0o700)
    except OSError as error:
        return f"{folder} cannot be closed to others ({error.strerror})"
    return ""
