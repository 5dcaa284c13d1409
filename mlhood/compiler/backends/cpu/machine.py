"""What kernels are prepared for, packed weights among it, and the native calls that were chosen for an instruction."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mlhood.compiler.lir.instructions import Buffer, Compute, Weight
from mlhood.files.mapped import release_pages
from mlhood.kernels.codegen import jit
from mlhood.kernels.codegen.target import Target
from mlhood.kernels.native import NativeCall

VERSION = 1  # of the packed forms: raise it when one changes
MOST = 2**31  # bytes on disk: beyond, the weights that were not used for the longest time are removed
SMALLEST = 2**18  # bytes: smaller weights are packed faster than a file is opened
Identity = tuple[int, tuple[int, ...], str]


@dataclass(frozen=True)
class CpuSetup:
    """What kernels are prepared for.

    Args:
        target: The processor.
        threads: Number of threads.
        weights: Packed weights.
        exact: Whether NaN and infinities must reach exactly the results that depend on them: not so with Winograd's
            convolutions.
    """

    target: Target
    threads: int
    weights: WeightCache
    exact: bool = False

    @property
    def options(self) -> dict[str, Any]:
        """What kernels are prepared for, as their arguments."""
        return {"threads": self.threads, "target": self.target}


@dataclass(frozen=True)
class Selection:
    """The native calls of an instruction.

    Args:
        calls: They run one after another.
        operands: The buffer of each operand by name; those that a call has and that are missing here are workspaces.
    """

    calls: tuple[NativeCall, ...]
    operands: Mapping[str, Buffer] = field(default_factory=dict)

    @property
    def workspace(self) -> dict[str, int]:
        """Bytes of each workspace, which keeps its content from the first call to the last."""
        sizes: dict[str, int] = {}
        for call in self.calls:
            for name, size in call.workspace.items():
                sizes[name] = max(size, sizes.get(name, 0))
        return sizes


Rule = Callable[[Any, Compute, CpuSetup], Selection | None]


def unary(prepare: Callable[[Any, Buffer, Buffer, CpuSetup], NativeCall | None]) -> Rule:
    """Return the rule of an operator of one input, given what returns its kernel with operands x and out, if any."""

    def rule(operator: Any, instruction: Compute, machine: CpuSetup) -> Selection | None:
        x, y = instruction.reads[0], instruction.results[0]
        call = prepare(operator, x, y, machine)
        return None if call is None else Selection((call,), {"x": x, "out": y})

    return rule


def constant(buffer: Buffer | None) -> np.ndarray | None:
    """Return the array of a constant; None for a buffer that is none, or for an input that is left out."""
    return buffer.data if isinstance(buffer, Weight) else None


def shape(buffer: Buffer) -> tuple[int, ...]:
    """Return the shape of a buffer, which has no dynamic axes."""
    return tuple(int(axis) for axis in buffer.type.shape)


# -- packed weights: made once, kept in memory for all plans of a model, and on disk by their content


def identity(array: np.ndarray | None) -> Identity | None:
    """Return a key that identifies a constant within its model: arrays are views, but their memory stays."""
    return None if array is None else (array.__array_interface__["data"][0], array.shape, array.dtype.str)


class WeightCache:
    """The packed weights of one model, whose constants must live at least as long.

    A packed weight is a file in the folder of the kernels' object code, named by a digest of the weight and of its
    form; it is mapped into memory, so that processes share it and the operating system can drop its pages. A missing
    or damaged file, or a folder that cannot be written, only costs the packing.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or jit.cache_folder() / "weights"
        self._packed: dict[tuple[Identity | None, str], np.ndarray] = {}
        self._digests: dict[Identity | None, str] = {}
        self._memo: dict[Hashable, Any] = {}

    def memo(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Return what was made for a key, or make it."""
        if key not in self._memo:
            self._memo[key] = make()
        return self._memo[key]

    def packed(self, source: np.ndarray, form: str, pack: Callable[[], np.ndarray]) -> np.ndarray:
        """Return a weight in a packed form.

        Args:
            source: The weight.
            form: What determines the packed form beside the weight: algorithm, widths.
            pack: Makes it: float32, contiguous.
        """
        key = (identity(source), form)
        if key not in self._packed:
            self._packed[key] = pack() if source.nbytes < SMALLEST else self._from_disk(source, form, pack)
            release_pages(source)
        return self._packed[key]

    def _from_disk(self, source: np.ndarray, form: str, pack: Callable[[], np.ndarray]) -> np.ndarray:
        path = self.folder / f"{self._digest(source)}-{hashlib.sha256(form.encode()).hexdigest()[:16]}.npy"
        array = _read(path)
        if array is None:
            array = pack()
            _write(path, array)
            written = _read(path)
            array = array if written is None else written
            _evict(self.folder)
        return array

    def _digest(self, source: np.ndarray) -> str:
        key = identity(source)
        if key not in self._digests:
            digest = hashlib.blake2b(f"{VERSION} {source.dtype} {source.shape}".encode(), digest_size=20)
            digest.update(np.ascontiguousarray(source).data)
            self._digests[key] = digest.hexdigest()
        return self._digests[key]


def _read(path: Path) -> np.ndarray | None:
    try:
        os.utime(path)  # used now
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None


def _write(path: Path, array: np.ndarray) -> None:
    """Write an array atomically: a reader sees a complete file or none."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            np.save(file, array, allow_pickle=False)
            file.flush()
            os.fsync(file.fileno())  # before it gets its name, so that a power failure leaves no file of zeros
        Path(file.name).replace(path)
    except OSError:
        return


def _evict(folder: Path) -> None:
    """Remove the files that were not used for the longest time, until the others have at most `MOST` bytes."""
    try:
        found = [(path.stat(), path) for path in folder.iterdir()]
        total = 0
        for status, path in sorted(found, key=lambda entry: -entry[0].st_mtime):
            total += status.st_size
            if total > MOST:
                path.unlink()
    except OSError:  # another process removes files, too, or one is in use
        return
