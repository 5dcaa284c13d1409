"""Training that can be resumed: the state of a step, saved atomically by orbax every few steps.

A checkpoint stores the arrays exactly, bit for bit, and each process writes the shards of its own devices. A program
whose data depend only on the step's number computes the same after an interruption as without one.

>>> with Checkpoints(folder, every=2) as checkpoints:
...     done, state = checkpoints.resume(initial_state)
...     for step in range(done, 10):
...         state = train(state, step)
...         checkpoints.save(step + 1, state)
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Any

import jax
import orbax.checkpoint as ocp

from mlhood.errors import ClusterError

_KEPT = 2


class Checkpoints:
    """The latest two checkpoints in a folder.

    Args:
        folder: A folder on a file system that all processes share.
        every: Steps between checkpoints.

    Raises:
        ClusterError: The folder cannot be created, or `every` is less than 1.
    """

    def __init__(self, folder: str | Path, *, every: int = 1) -> None:
        if every < 1:
            raise ClusterError("no checkpoint would be kept", expected="1 or more", got=f"every {every}")
        self.folder = Path(folder).absolute()
        # not in the background: a process could exit while a checkpoint is being written
        options = ocp.CheckpointManagerOptions(max_to_keep=_KEPT, enable_async_checkpointing=False)
        self._every = every
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._manager = ocp.CheckpointManager(
                self.folder, options=options, item_handlers=ocp.StandardCheckpointHandler()
            )
        except (OSError, ValueError) as error:
            raise ClusterError("the folder of checkpoints cannot be opened", where=self.folder, got=error) from error

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # after an error other processes may have exited, and closing would wait for them
        if kind is None:
            self._manager.close()

    @property
    def last(self) -> int | None:
        """The step of the latest complete checkpoint, or None."""
        return self._manager.latest_step()

    def save(self, step: int, state: Any) -> bool:
        """Save the state if a checkpoint is due, and return whether it was; all processes must call this alike.

        Args:
            step: Number of steps that are done.
            state: A tree of JAX arrays.

        Raises:
            ClusterError: The checkpoint cannot be written.
        """
        if step % self._every:
            return False
        try:
            return self._manager.save(step, args=ocp.args.StandardSave(state))
        except (OSError, ValueError) as error:
            raise ClusterError("a checkpoint cannot be written", where=self.folder, got=error) from error

    def resume(self, state: Any) -> tuple[int, Any]:
        """Return the number of steps done and the state after them; 0 and `state` if there is no checkpoint.

        Args:
            state: A tree of JAX arrays with the shapes, dtypes and shardings to restore.

        Raises:
            ClusterError: The latest checkpoint has other arrays, or cannot be read.
        """
        step = self.last
        if step is None:
            return 0, state
        try:
            got, expected = _array_types(self._manager.item_metadata(step).tree), _array_types(state)
            if got != expected:
                raise self._restore_error(step, _listed(got - expected), _listed(expected - got))
            like = jax.tree.map(ocp.tree.to_shape_dtype_struct, state)
            return step, self._manager.restore(step, args=ocp.args.StandardRestore(like))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._restore_error(step, f"{type(error).__name__}: {error}") from error

    def _restore_error(self, step: int, got: str, expected: str = "the arrays of this program's state") -> ClusterError:
        return ClusterError(
            "the latest checkpoint cannot be restored",
            where=self.folder / str(step),
            expected=expected,
            got=got,
            todo="remove it to resume from the one before, or choose another folder",
        )


def _array_types(tree: Any) -> Counter[str]:
    """Count dtypes and shapes; names may be spelled differently in a checkpoint."""
    return Counter(f"{leaf.dtype}{list(leaf.shape)}" for leaf in jax.tree.leaves(tree))


def _listed(types: Counter[str]) -> str:
    return ", ".join(types.elements()) or "no others"
