"""Training that goes on after a break: what a step needs, saved by orbax every few steps, whole or not at all.

A checkpoint holds the arrays as they are, bit by bit, and each process writes the parts of its own devices. A program
that draws its data from the step's number does then after a break what it would have done without one.

>>> with Checkpoints(folder, every=2) as checkpoints:
...     step, state = checkpoints.resume(start)
...     for number in range(step, 10):
...         state = train(state, number)
...         checkpoints.save(number + 1, state)
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Any

import jax
import orbax.checkpoint as ocp

from mlhood.errors import ClusterError


class Checkpoints:
    """The checkpoints of a folder, the last few of them.

    Args:
        folder: Where they are; all processes must see the same.
        every: Steps between them.
        keep: How many to keep.

    Raises:
        ClusterError: The folder cannot be made, or the numbers make no sense.
    """

    def __init__(self, folder: str | Path, *, every: int = 1, keep: int = 2) -> None:
        if every < 1 or keep < 1:
            raise ClusterError("no checkpoint would be kept", expected="1 or more", got=f"every {every}, keep {keep}")
        self.folder = Path(folder).absolute()
        # in the background, one could still be written while a process ends
        options = ocp.CheckpointManagerOptions(max_to_keep=keep, enable_async_checkpointing=False)
        self._every = every
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._manager = ocp.CheckpointManager(
                self.folder, options=options, item_handlers=ocp.StandardCheckpointHandler()
            )
        except (OSError, ValueError) as error:
            raise ClusterError("there can be no checkpoints here", where=self.folder, got=error) from error

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # on an error the others may be gone, and closing would wait for them
        if kind is None:
            self._manager.close()

    @property
    def last(self) -> int | None:
        """The step of the last whole checkpoint, or None."""
        return self._manager.latest_step()

    def save(self, step: int, state: Any) -> bool:
        """Save after a step if it is due, and return whether it was; all processes ask for the same steps.

        Args:
            step: Steps that have been done.
            state: A tree of JAX arrays.

        Raises:
            ClusterError: It cannot be written.
        """
        if step % self._every:
            return False
        try:
            return self._manager.save(step, args=ocp.args.StandardSave(state))
        except (OSError, ValueError) as error:
            raise ClusterError("a checkpoint cannot be written", where=self.folder, got=error) from error

    def resume(self, state: Any) -> tuple[int, Any]:
        """Return how many steps have been done and the state after them; 0 and `state` where there is no checkpoint.

        Args:
            state: A tree of JAX arrays with the shapes, types and layouts on devices that are asked for.

        Raises:
            ClusterError: The last checkpoint is of something else, or cannot be read.
        """
        step = self.last
        if step is None:
            return 0, state
        try:
            found, wanted = _arrays(self._manager.item_metadata(step).tree), _arrays(state)
            if found != wanted:
                raise self._unread(step, _told(found - wanted), _told(wanted - found))
            like = jax.tree.map(ocp.tree.to_shape_dtype_struct, state)
            return step, self._manager.restore(step, args=ocp.args.StandardRestore(like))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._unread(step, f"{type(error).__name__}: {error}") from error

    def _unread(self, step: int, got: str, expected: str = "a tree of arrays such as this program has") -> ClusterError:
        return ClusterError(
            "the last checkpoint cannot be read",
            where=self.folder / str(step),
            expected=expected,
            got=got,
            todo="remove it to go on from the one before, or choose another folder",
        )


def _arrays(tree: Any) -> Counter[str]:
    """Return how often each type and shape occurs: names may be written otherwise in a checkpoint."""
    return Counter(f"{leaf.dtype}{list(leaf.shape)}" for leaf in jax.tree.leaves(tree))


def _told(arrays: Counter[str]) -> str:
    return ", ".join(arrays.elements()) or "none besides"
