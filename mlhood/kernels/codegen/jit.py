"""From LLVM IR to a function that Python calls, with a cache of object code on disk.

A kernel is compiled once per machine: its object code is cached under a digest of everything that determines it (the
sources of the generator, its arguments, the processor, LLVM's version); later processes only load it.
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

_DIGEST_BYTES = 32
_ENGINES: list[Any] = []  # never freed: callers hold addresses of their code

Build = Callable[..., str]
Kernel = Callable[[int, int], None]


def load(build: Build, target: Target, *arguments: Any) -> Kernel:
    """Return the function `kernel` of the module that `build(target, *arguments)` generates.

    Args:
        build: A function that returns LLVM IR as text. The cache key includes the sources of this package and of the
            modules beside `build`: the IR may depend on these only.
        target: The processor; it must be this machine's.
        arguments: Plain values with a distinctive `repr`.
    """
    return _load(build, target, arguments, repr(arguments))


@functools.cache
def _load(build: Build, target: Target, arguments: tuple[Any, ...], text: str) -> Kernel:
    _initialize()  # the text is an argument because 0.0 == -0.0
    request = (build.__module__, build.__qualname__, target, arguments, llvm.get_process_triple())
    key = hashlib.sha256(f"{_source_digest(Path(inspect.getfile(build)).parent)} {request!r}".encode()).hexdigest()[:40]
    path = cache_folder() / f"{key}.o"
    code = read_cached(path)
    if code is None:
        code = compile_ir(build(target, *arguments), target)
        write_cached(path, code)
    return _link(code, target)


def address(kernel: Kernel) -> int:
    """Return the address of a function that `load` returned, for native code that calls it."""
    pointer: Any = kernel
    return int(ctypes.cast(pointer, ctypes.c_void_p).value or 0)


def compile_ir(text: str, target: Target, *, assembly: bool = False) -> Any:
    """Compile a module to object code (bytes), or to assembly (text)."""
    _initialize()
    if target.triple:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
    machine = _target_machine(target)
    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return machine.emit_assembly(module) if assembly else machine.emit_object(module)


def _target_machine(target: Target) -> llvm.TargetMachine:
    backend = llvm.Target.from_triple(target.triple or llvm.get_process_triple())
    return backend.create_target_machine(target.cpu, target.features, opt=3, reloc="default", codemodel="jitdefault")


def _link(code: bytes, target: Target) -> Kernel:
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _target_machine(target))
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    _ENGINES.append(engine)
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(engine.get_function_address("kernel"))


@functools.cache
def _initialize() -> None:
    """Initialise code generation for this machine; other targets take memory, and only cross-compilation needs them."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


# -- the cache on disk


def cache_folder() -> Path:
    """Return the folder of the object code: `MLHOOD_CACHE`, or one in the user's cache folder."""
    if override := os.environ.get("MLHOOD_CACHE"):
        return Path(override)
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "mlhood" / "kernels"


def read_cached(path: Path) -> bytes | None:
    """Return the object code in a file, or None if the file is missing or damaged."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    digest, code = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
    return code if hashlib.sha256(code).digest() == digest else None


def write_cached(path: Path, code: bytes) -> None:
    """Write object code to a file atomically; if the folder is not writable, it is compiled again the next time."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(hashlib.sha256(code).digest() + code)
        Path(file.name).replace(path)
    except OSError:
        return


@functools.cache
def _source_digest(folder: Path) -> str:
    """Return a digest of llvmlite's version and of all sources that determine the code: this package and the folder."""
    digest = hashlib.sha256(importlib.metadata.version("llvmlite").encode())
    for path in sorted({*folder.glob("*.py"), *Path(__file__).parent.glob("*.py")}):
        digest.update(path.read_bytes())
    return digest.hexdigest()
