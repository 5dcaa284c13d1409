"""From LLVM IR to a function that Python calls, with the machine code kept on disk between processes.

A kernel is compiled once for a machine: its object code is kept under a name made of what it was asked for (the
generator's sources, its arguments, the processor, LLVM's version), and a later process only loads it.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib.metadata
import inspect
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm

from mlhood.kernels.codegen.target import Target

_DIGEST = 32
_LOADED: list[Any] = []  # machine code lives as long as the process: its addresses are handed out

Build = Callable[..., str]
Kernel = Callable[[int, int], None]


def load(build: Build, target: Target, *arguments: Any) -> Kernel:
    """Return the function `kernel` of the module that `build(target, *arguments)` writes, as `f(plan, wait)`.

    Args:
        build: A function that returns LLVM IR as text; written in this package, or in a module that needs no other
            module of its own for it.
        target: The processor; its kernels must run here.
        arguments: Plain values that `repr` tells apart.
    """
    return _load(build, target, arguments)


@functools.cache
def _load(build: Build, target: Target, arguments: tuple[Any, ...]) -> Kernel:
    _initialize()
    path = cache_folder() / f"{_key(build, target, arguments)}.o"
    code = read(path)
    if code is None:
        code = compile_ir(build(target, *arguments), target)
        write(path, code)
    return _link(code, target)


def compile_ir(text: str, target: Target, *, assembly: bool = False) -> Any:
    """Return the object code (bytes) of a module, or its assembly (text) for people."""
    _initialize()
    machine = _machine(target)
    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return machine.emit_assembly(module) if assembly else machine.emit_object(module)


def _machine(target: Target) -> llvm.TargetMachine:
    triple = target.triple or llvm.get_process_triple()
    found = llvm.Target.from_triple(triple)
    return found.create_target_machine(target.cpu, target.features, opt=3, reloc="default", codemodel="jitdefault")


def _link(code: bytes, target: Target) -> Kernel:
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _machine(target))
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    _LOADED.append(engine)
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(engine.get_function_address("kernel"))


@functools.cache
def _initialize() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


# -- the cache on disk


def cache_folder() -> Path:
    """Return where object code is kept: `MLHOOD_CACHE`, or the user's folder for caches."""
    if chosen := os.environ.get("MLHOOD_CACHE"):
        return Path(chosen)
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "mlhood" / "kernels"


def read(path: Path) -> bytes | None:
    """Return the object code in a file; None if there is none, or if it is not whole."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    digest, code = content[:_DIGEST], content[_DIGEST:]
    return code if hashlib.sha256(code).digest() == digest else None


def write(path: Path, code: bytes) -> None:
    """Keep object code in a file, whole or not at all; a folder that cannot be written costs only time."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(hashlib.sha256(code).digest() + code)
        Path(file.name).replace(path)
    except OSError:
        return


def _key(build: Build, target: Target, arguments: tuple[Any, ...]) -> str:
    asked = (build.__module__, build.__qualname__, target, arguments, llvm.get_process_triple())
    return hashlib.sha256(f"{_sources(inspect.getfile(build))} {asked!r}".encode()).hexdigest()[:40]


@functools.cache
def _sources(generator: str) -> str:
    """Return a digest of all that decides what code comes out: the generator's file, this package, and llvmlite.

    Args:
        generator: The file that writes the IR, in this package or elsewhere.
    """
    digest = hashlib.sha256(importlib.metadata.version("llvmlite").encode())
    for path in sorted({Path(generator), *Path(__file__).parent.glob("*.py")}):
        digest.update(path.read_bytes())
    return digest.hexdigest()
