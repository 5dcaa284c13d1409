"""Run a kernel in Numba's CUDA simulator, and record each access to global and shared memory.

The simulator computes the values: a thread of the kernel is a thread of Python. Here they take turns, in the order of
their numbers, each up to the next barrier, so that a kernel does the same in every run, even one with a race.
"""

from __future__ import annotations

import dis
import functools
import itertools
import linecache
import sys
import threading
from array import array as packed
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any

import numba.cuda
import numpy as np
from numba import config, types
from numba.cuda.errors import normalize_kernel_dimensions
from numba.cuda.simulator.kernel import BlockThread, _push_kernel_context
from numba.cuda.simulator.kernelapi import FakeCUDAModule, swapped_cuda_module
from numba.np.numpy_support import as_dtype

from mlhood.errors import GPUError
from mlhood.gpu.report import FIELDS, Memory, Place, Report, analyse, as_index
from mlhood.measure.traffic import InstrumentedArray, states

__all__ = ["cuda", "launch"]

cuda = numba.cuda
"""Numba's CUDA target: here the simulator, unless a process imported `numba.cuda` before this package."""


def launch(kernel: Callable, blocks: int | tuple[int, ...], threads: int | tuple[int, ...], *arguments: Any) -> Report:
    """Run a kernel as `kernel[blocks, threads](*arguments)` does, and count what memory would have to serve.

    Args:
        kernel: A function of `cuda.jit`, or one that it could take.
        blocks: Of the grid: their number along x, y and z.
        threads: Of a block: their number along x, y and z.
        arguments: Of the kernel. Arrays are global memory, aligned as CUDA allocates them, and written in place.

    Raises:
        GPUError: The kernel accesses an element that does not exist; or `numba.cuda` is that of a GPU.
        Exception: Whatever else a thread raises.
    """
    if not config.ENABLE_CUDASIM:  # pyright: ignore[reportAttributeAccessIssue]
        raise GPUError(
            "the simulator is not active",
            expected="mlhood.gpu imported before numba.cuda",
            got="numba.cuda imported first, for a GPU",
            todo="restart the kernel, and import from mlhood.gpu first",
        )
    function = getattr(kernel, "fn", kernel)
    grid, block = normalize_kernel_dimensions(blocks, threads)
    recorder = _Recorder(grid, block)
    names = function.__code__.co_varnames
    given = [
        recorder.array(value, recorder.add(value, name)) if isinstance(value, np.ndarray) else value
        for name, value in zip(names, arguments, strict=False)
    ]
    module = _Module(grid, block, recorder)
    with _push_kernel_context(module), swapped_cuda_module(function, module):
        for z, y, x in np.ndindex(*reversed(grid)):
            recorder.begin_block((x, y, z), x + grid[0] * (y + grid[1] * z))
            _run_block(functools.partial(function, *given), recorder)
    log = np.frombuffer(recorder.log, np.int64).reshape(-1, len(FIELDS))
    return analyse(log, recorder.memories, recorder.places, grid, block, recorder.barriers)


def _run_block(function: Callable, recorder: _Recorder) -> None:
    """Run the threads of a block one at a time, each up to its next barrier, until all have ended."""
    sizes = recorder._block_dim
    threads = [_Thread(function, recorder, index[::-1]) for index in np.ndindex(*reversed(sizes))]
    running = threads
    while running:
        for thread in running:
            recorder.thread = thread.thread_id
            thread.resume()
            if thread.exception:
                for other in running:
                    other.end()
                raise thread.exception
        waiting = [thread.barrier for thread in running if thread.barrier is not None]
        running = [thread for thread in running if thread.barrier is not None]
        if waiting:
            recorder.end_phase(waiting, len(threads))


class _Thread(BlockThread):
    """A thread of a block that runs when `resume` says so.

    Args:
        function: The kernel with its arguments.
        recorder: Of the launch; to the simulator it is the manager of the block.
        index: The number of the thread along x, y and z.
    """

    def __init__(self, function: Callable, recorder: _Recorder, index: tuple[int, ...]) -> None:
        super().__init__(function, recorder, recorder.block_index, index, debug=False)
        self.barrier: int | None = None  # the place where it waits
        self._turn, self._stopped = threading.Semaphore(0), threading.Semaphore(0)

    def resume(self) -> None:
        """Run up to the next barrier or the end."""
        self.barrier = None
        if self.ident is None:
            self.start()
        else:
            self._turn.release()
        self._stopped.acquire()

    def end(self) -> None:
        """End a thread that waits at a barrier; it must not run on after an error in another one."""
        if self.barrier is not None:
            self.abort = True
            self.resume()

    def run(self) -> None:
        """Run the kernel."""
        try:
            threading.Thread.run(self)
        except _Ended:
            pass
        except Exception as error:
            self.exception = error
        self._stopped.release()

    def syncthreads(self) -> None:
        """Wait for all threads of the block."""
        self.barrier = self._manager.place(_kernel_frame(sys._getframe(1)))
        self._stopped.release()
        self._turn.acquire()
        if self.abort:
            raise _Ended


class _Ended(BaseException):
    """Ends a thread."""


def _kernel_frame(frame: FrameType) -> FrameType:
    """Return the frame of the kernel, or of a function of its, that called the simulator."""
    while frame.f_back and frame.f_globals.get("__name__", "").startswith(("numba.", __name__)):
        frame = frame.f_back
    return frame


class _Module(FakeCUDAModule):
    """The module `cuda` as a kernel sees it while it runs."""

    def __init__(self, grid: tuple[int, ...], block: tuple[int, ...], recorder: _Recorder) -> None:
        super().__init__(grid, block, 0)
        self._shared = recorder.shared


class _Recorder:
    """Records the accesses of a launch, and stands for the manager of the current block in the simulator.

    Args:
        grid: Blocks along x, y and z.
        threads: Of a block, along x, y and z.

    Attributes:
        grid: Blocks along x, y and z.
        log: Rows of `report.FIELDS`.
        memories: The arrays, by the number that they have in the log.
        places: Where in the kernel something happens, by their numbers.
        barriers: What is wrong with barriers.
    """

    def __init__(self, grid: tuple[int, ...], threads: tuple[int, ...]) -> None:
        self.grid = grid
        self.log = packed("q")
        self.memories: list[Memory] = []
        self.places: list[Place] = []
        self.barriers: list[str] = []
        self.shared = _Shared(self)
        self._block_dim, self.block_state = threads, np.zeros(threads, np.bool_)  # names that the simulator knows
        self._numbers: dict[tuple[int, int], int] = {}
        self.block_index: tuple[int, ...] = ()
        self.block = self.thread = self.phase = 0

    def begin_block(self, index: tuple[int, ...], number: int) -> None:
        """Begin a block, which has its own shared memory."""
        self.block_index, self.block, self.phase = index, number, 0
        self.shared.arrays.clear()

    def end_phase(self, waiting: list[int], threads: int) -> None:
        """Note that each thread of a block waits at a barrier, at one of these places, or has ended."""
        self.phase += 1
        lines = sorted({self.places[number].line for number in waiting})
        block = f"of block {as_index(self.block_index, self.grid)}"
        if len(waiting) < threads:
            self.barriers.append(
                f"only {len(waiting)} of {threads} threads {block} reach the barrier in line {lines[0]}"
            )
        elif len(lines) > 1:
            where = " and ".join(map(str, lines))
            self.barriers.append(f"the threads {block} wait at different barriers, in lines {where}")

    def place(self, frame: FrameType) -> int:
        """Return the number of the place that a frame is at."""
        code, offset = frame.f_code, frame.f_lasti
        number = self._numbers.get((id(code), offset))
        if number is None:  # an instruction has several offsets, but one position
            line, *rest = next(itertools.islice(code.co_positions(), offset // 2, None))
            text = linecache.getline(code.co_filename, frame.f_lineno).strip()
            place = Place(line or 0, text, (id(code), *rest))
            if place not in self.places:
                self.places.append(place)
            number = self._numbers[id(code), offset] = self.places.index(place)
        return number

    def record(self, number: int, offset: int, frame: FrameType, *, write: bool) -> None:
        """Record an access of the current thread."""
        self.log.extend((self.block, self.thread, self.phase, number, offset, write, self.place(frame)))

    def add(self, data: np.ndarray, name: str, *, shared: bool = False) -> int:
        """Return the number of a new array of global, or shared, memory."""
        self.memories.append(Memory(name, data.shape, data.itemsize, shared))
        return len(self.memories) - 1

    def array(self, data: np.ndarray, number: int) -> _Recorded:
        """Return an array of which each access is recorded under this number."""
        axes = [np.arange(size) * step for size, step in zip(data.shape, data.strides, strict=True)]
        return _Recorded(_Part(data, functools.reduce(np.add.outer, axes), self, number))

    def where(self) -> str:
        """Return the current thread and block in words."""
        index = np.unravel_index(self.thread, self._block_dim, order="F")
        return f"thread {as_index(index, self._block_dim)} of block {as_index(self.block_index, self.grid)}"


class _Shared:
    """The arrays in the shared memory of the current block, each known by the place where it is declared."""

    def __init__(self, recorder: _Recorder) -> None:
        self.recorder = recorder
        self.arrays: dict[tuple[int, int], _Recorded] = {}
        self.numbers: dict[tuple[int, int], int] = {}  # the same in all blocks

    def array(self, shape: int | tuple[int, ...], dtype: Any) -> _Recorded:
        """Return the array of this block; floating-point numbers are NaN until they are written."""
        frame = sys._getframe(1)
        key = id(frame.f_code), frame.f_lasti
        if key not in self.arrays:
            data = np.zeros(shape, as_dtype(dtype) if isinstance(dtype, types.Type) else dtype)
            if data.dtype.kind == "f":
                data.fill(np.nan)
            if key not in self.numbers:
                stores = (step for step in dis.get_instructions(frame.f_code) if step.opname.startswith("STORE_"))
                name = next((step.argval for step in stores if step.offset > frame.f_lasti), "shared")
                self.numbers[key] = self.recorder.add(data, str(name), shared=True)
            self.arrays[key] = self.recorder.array(data, self.numbers[key])
        return self.arrays[key]


@dataclass(frozen=True)
class _Part:
    """An array of a kernel, or a part of it.

    Args:
        array: The data.
        offsets: Of each element, in bytes from the beginning of the array.
        recorder: Of the launch.
        number: Of the array.
    """

    array: np.ndarray
    offsets: np.ndarray
    recorder: _Recorder
    number: int


class _Recorded(InstrumentedArray):
    """An array as a kernel sees it: elements and parts of it, but none of NumPy's operations."""

    __slots__ = ()

    def __getitem__(self, index: Any) -> Any:
        part = states[id(self)]
        offset = _locate(part, index)
        if isinstance(offset, np.ndarray):
            return _Recorded(replace(part, array=part.array[index], offsets=offset))
        part.recorder.record(part.number, offset, sys._getframe(1), write=False)
        return part.array[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        part = states[id(self)]
        offset = _locate(part, index)
        if isinstance(offset, np.ndarray):
            raise GPUError("a kernel assigns elements, not arrays", where=part.recorder.where(), got=f"index {index}")
        part.recorder.record(part.number, offset, sys._getframe(1), write=True)
        part.array[index] = value


def _locate(part: _Part, index: Any) -> Any:
    try:
        return part.offsets[index]
    except IndexError as error:
        frame = sys._getframe(2)
        name = part.recorder.memories[part.number].name
        place = part.recorder.places[part.recorder.place(frame)]
        element = ", ".join(map(str, index)) if isinstance(index, tuple) else index
        raise GPUError(
            f"{name}[{element}] is out of bounds" if "out of bounds" in str(error) else f"{name}[{element}]: {error}",
            where=f"{part.recorder.where()}, line {place.line}: {place.text}",
            expected=f"an element of {name}, whose shape is {part.array.shape}",
            todo="compare the indices with the shapes before you read or write: the last blocks extend beyond c",
        ) from None
