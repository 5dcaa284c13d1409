"""The files of a bare kernel: the libraries of a task, the interpreter, and the shared libraries that these need.

What a task forbids does not exist where its functions run, so nobody has to read how a submission would reach it.

NumPy loads its BLAS when it is imported, so the library has to be there, where ctypes reaches it, too; and with it that
of GNU Fortran, whose `matmul` is as fast. Where products are the task, copies of them are there whose functions do
nothing.
"""

from __future__ import annotations

import ast
import functools
import importlib.metadata
import json
import os
import platform
import re
import shutil
import struct
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from mlhood.grading.bare.libraries import NOT_AVAILABLE, Libraries
from mlhood.grading.rpc.sources import ROOT, defined, module_file

SITE = Path("/site")
KERNEL = ("ipython", "threadpoolctl", "flatbuffers")
"""What cells and requests need: IPython, to limit threads that are measured, and to write programs of `jax.export`."""
SERVER = (
    "mlhood.grading.rpc.cell_runner",
    "mlhood.grading.bare.kernel",
    "mlhood.measure.threading",
)
RAISE = f"raise ModuleNotFoundError('`{{name}}` {NOT_AVAILABLE}')"
MISSING = "from mlhood.grading.bare.kernel import Missing as _Missing\n{target} = _Missing('{name}')"


BLAS = re.compile(r"blas|lapack|mkl|gfortran")
# the instruction that returns to the caller, by processor
RETURN = {"x86_64": b"\xc3", "aarch64": b"\xc0\x03\x5f\xd6"}
# NumPy tests one product of vectors when it is imported
KEPT = re.compile(rb"[sdcz]dot|openblas_|blas_thread|gotoblas")
DYNAMIC_SYMBOLS, LOADED, FUNCTION, GLOBAL = 11, 1, 2, (1, 2)
SYMBOL = struct.Struct("<IBBHQQ")  # Elf64_Sym


@dataclass(frozen=True)
class BareFiles:
    """Files for `Libraries`.

    Args:
        setup: What `kernel.install` needs.
        entries: Files and folders of installed packages, absolute.
        tree: A folder with the modules of `mlhood`.
    """

    setup: dict[str, Any]
    entries: tuple[Path, ...]
    tree: Path

    def view(self) -> list[str]:
        """Return the arguments of bubblewrap that show these files, and nothing else of this machine."""
        standard = Path(sysconfig.get_path("stdlib"))
        words = ["--ro-bind", str(standard), str(standard)]
        words += [word for path in standard.glob("*-packages") for word in ("--tmpfs", str(path))]
        bound = [(path, SITE / path.name) for path in (*self.entries, self.tree / "mlhood")]
        bound += [(Path(name), Path(name)) for name in (interpreter(), *_shared_libraries(self.entries))]
        if not self.setup["products"]:
            bound += [(_without_products(source), target) for source, target in _files(bound) if is_blas(source)]
        return words + [word for source, target in bound for word in ("--ro-bind", str(source), str(target))]

    def environment(self) -> dict[str, str]:
        """Return the variables of a bare kernel that runs without a sandbox."""
        return {"PYTHONPATH": str(self.tree)}

    def command(self) -> list[str]:
        """Return the command of a bare kernel that runs without a sandbox."""
        program = [sys.executable, "-S", "-P", "-m", "mlhood.grading.bare.kernel"]
        return [*program, json.dumps(self.setup | {"site": sysconfig.get_path("purelib")})]


def interpreter() -> str:
    """Return the path of the interpreter itself, outside of a virtual environment."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


@functools.cache
def files_of(libraries: Libraries, *launchers: str) -> BareFiles:
    """Return the files for libraries, with the modules that start the kernel in a sandbox."""
    folder = Path(sysconfig.get_path("purelib"))
    names = {part for name in (*KERNEL, *libraries.packages) for part in _top_levels(name)}
    entries = tuple(sorted(path for name in names if (path := folder / name).exists()))
    setup = {
        "packages": sorted(path.name.partition(".")[0] for path in entries if path.suffix != ".dist-info"),
        "site": str(SITE),
        "products": libraries.products,
        "processes": libraries.processes,
    }
    return BareFiles(setup, entries, _tree(libraries, launchers))


@functools.cache
def _top_levels(name: str) -> frozenset[str]:
    """Return the files and folders of a distribution, and of those that it requires."""
    found, seen, todo = set(), set(), [name]
    while todo:
        name = re.sub(r"[-_.]+", "-", todo.pop()).lower()
        if name in seen:
            continue
        seen.add(name)
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:  # not needed on this system
            continue
        found |= {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}
        requirements = map(Requirement, distribution.requires or ())
        todo += [each.name for each in requirements if not each.marker or each.marker.evaluate({"extra": ""})]
    return frozenset(found)


@functools.cache
def _shared_libraries(entries: tuple[Path, ...]) -> tuple[str, ...]:
    """Return the shared libraries of the system that the interpreter and these packages load."""
    folders = [*(path for path in entries if path.is_dir()), Path(sysconfig.get_path("stdlib"), "lib-dynload")]
    found = {name for path in (Path(interpreter()), *folders) for name in _linked(path)}
    return tuple(sorted(name for name in found if not any(Path(name).is_relative_to(path) for path in entries)))


def _files(bound: Sequence[tuple[Path, Path]]) -> Iterator[tuple[Path, Path]]:
    """Yield files that are bound, or in folders of libraries that are bound, and where they are seen."""
    for source, target in bound:
        if source.suffix == ".libs":
            yield from ((path, target / path.name) for path in source.iterdir())
        else:
            yield source, target


@functools.cache
def _without_products(library: Path) -> Path:
    copy = Path(_folder().name, library.name)
    copy.write_bytes(without_products(library.read_bytes()))
    return copy


@functools.cache
def _linked(path: Path) -> frozenset[str]:
    """Return the shared libraries that a program, or those in a folder, load; different `Libraries` share folders."""
    files = list(map(str, path.rglob("*.so*"))) if path.is_dir() else [str(path)]
    if not files:
        return frozenset()
    text = subprocess.run([shutil.which("ldd") or "ldd", *files], capture_output=True, text=True, check=False).stdout
    return frozenset(re.findall(r"(/\S+) \(0x", text))


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    folder = tempfile.TemporaryDirectory(prefix="mlhood-bare-", ignore_cleanup_errors=True)
    Path(folder.name).chmod(0o755)  # another user may run the kernel
    return folder


def _tree(libraries: Libraries, launchers: Sequence[str]) -> Path:
    """Write the modules of `mlhood` into a folder, without what is left out of them."""
    root = Path(tempfile.mkdtemp(dir=_folder().name))
    root.chmod(0o755)
    for module, source in _imported((*SERVER, *launchers, *libraries.modules), libraries.without).items():
        target = root / source.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        inside = [name.removeprefix(f"{module}.") for name in libraries.without if _module_of(name) == module]
        text = source.read_text(encoding="utf-8")
        target.write_text(_without(text, module, inside) if inside else text, encoding="utf-8")
        for data in source.parent.iterdir():
            if data.is_file() and data.suffix not in (".py", ".md") and not (target.parent / data.name).exists():
                (target.parent / data.name).write_bytes(data.read_bytes())
    return root


def _imported(modules: Sequence[str], without: Sequence[str]) -> dict[str, Path]:
    """Return the files of these modules, their packages, and what they import at their top, without those left out."""
    found: dict[str, Path] = {}
    todo = list(modules)
    while todo:
        module = todo.pop()
        file = module_file(module)
        if file is None or module in found or module in without:
            continue
        if any(module.startswith(f"{name}.") for name in without):
            continue
        found[module] = file
        if "." in module:
            todo.append(module.rpartition(".")[0])
        todo += _imports(file)
    return found


@functools.cache
def _imports(file: Path) -> tuple[str, ...]:
    """Return the modules of `mlhood` that a module imports when it is imported."""
    return tuple(_top_imports(ast.parse(file.read_text(encoding="utf-8")).body))


def _top_imports(statements: Sequence[ast.stmt]) -> Iterator[str]:
    for statement in statements:
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names if alias.name.startswith("mlhood"))
        elif isinstance(statement, ast.ImportFrom) and (statement.module or "").startswith("mlhood"):
            yield str(statement.module)
            yield from (f"{statement.module}.{alias.name}" for alias in statement.names)
        elif isinstance(statement, (ast.Try, ast.With)):
            yield from _top_imports(statement.body)


def _module_of(name: str) -> str:
    """Return the module that defines a dotted name."""
    return name if module_file(name) else _module_of(name.rpartition(".")[0])


def _without(text: str, module: str, names: Sequence[str]) -> str:
    """Return the text of a module in which its functions, methods and constants of these names cannot be used."""
    tree = ast.parse(text)
    for name in names:
        owner, _, last = name.rpartition(".")
        body = tree.body
        if owner:
            body = next(each for each in body if isinstance(each, ast.ClassDef) and each.name == owner).body
        position, statement = next((i, each) for i, each in enumerate(body) if last in defined(each))
        if isinstance(statement, ast.FunctionDef):
            statement.body = ast.parse(RAISE.format(name=f"{module}.{name}")).body
        else:
            body[position : position + 1] = ast.parse(MISSING.format(target=last, name=f"{module}.{name}")).body
    return ast.unparse(tree)


def is_blas(path: Path) -> bool:
    """Whether a file is a library with matrix products, by its name."""
    return ".so" in path.name and BLAS.search(path.name) is not None


def without_products(library: bytes) -> bytes:
    """Return an ELF library of 64 bits in which the functions that it exports return at once.

    Other processors than those of RETURN keep them.
    """
    code = RETURN.get(platform.machine())
    if code is None:
        return library
    changed = bytearray(library)
    for offset in _exported(library):
        changed[offset : offset + len(code)] = code
    return bytes(changed)


def _exported(library: bytes) -> Iterator[int]:
    """Yield where in the file the exported functions begin (elf(5))."""
    programs, sections = struct.unpack_from("<QQ", library, 32)
    program_size, program_count, section_size, section_count = struct.unpack_from("<HHHH", library, 54)
    headers = [struct.unpack_from("<IIQQQQ", library, programs + i * program_size) for i in range(program_count)]
    loaded = [(address, offset, size) for kind, _, offset, address, _, size in headers if kind == LOADED]
    tables = [struct.unpack_from("<IIQQQQI", library, sections + i * section_size) for i in range(section_count)]
    for _, kind, _, _, offset, size, link in tables:
        if kind != DYNAMIC_SYMBOLS:
            continue
        names = tables[link][4]
        for name, info, _, section, value, _ in SYMBOL.iter_unpack(library[offset : offset + size]):
            text = library[names + name : library.index(b"\0", names + name)]
            if info & 15 == FUNCTION and info >> 4 in GLOBAL and section and not KEPT.search(text):
                yield from (value - start + at for start, at, length in loaded if start <= value < start + length)
