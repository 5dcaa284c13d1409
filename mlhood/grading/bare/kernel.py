"""A kernel in which only the libraries of a task exist: all others can be imported, but not used.

    python -S -P -m mlhood.grading.bare.kernel SETUP

`SETUP` is JSON: `packages`, the top-level names that exist beside the standard library and `mlhood`, `site`, the folder
that they are in, `products`, whether NumPy has its matrix products, and `processes`, whether it may start others. In a
sandbox nothing else is on the disk (see `files`); elsewhere the finder alone keeps it away, which suffices for students
who try their own notebooks.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import gc
import importlib
import json
import sys
from collections.abc import Iterable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import Distribution, DistributionFinder, MetadataPathFinder
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from mlhood.grading.bare.libraries import NOT_AVAILABLE, PRODUCTS

OURS = "mlhood"
# numbers in C structures of Python: where a type has its number methods, and where these have `@` and `@=`
AS_NUMBER, MATRIX_PRODUCTS = 96, (272, 280)


class Missing(ModuleType):
    """Stands for a module that does not exist here, and for all that would be in it. To use it raises an error.

    It may be imported, named in annotations, and asked whether something is an instance or a
    subclass of it, which nothing is.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__ = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Missing(f"{self.__name__}.{name}")

    def __call__(self, *arguments: object, **options: object) -> Any:
        """Raise an error."""
        raise ModuleNotFoundError(f"`{self.__name__}` {NOT_AVAILABLE}", name=self.__name__)

    __enter__ = __iter__ = __len__ = __mro_entries__ = __call__
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __matmul__ = __rmatmul__ = __call__

    def __getitem__(self, key: object) -> Missing:
        return self

    __or__ = __ror__ = __getitem__

    def __instancecheck__(self, instance: object) -> bool:
        return False

    def __subclasscheck__(self, subclass: type) -> bool:  # SciPy asks it of what it finds in `sys.modules`
        return False


class Finder(MetaPathFinder, Loader):
    """Finds the packages that exist, and a `Missing` module for what a cell imports in vain.

    To a library, what is missing is not there.
    """

    def __init__(self, setup: dict[str, Any]) -> None:
        self.packages, self.site = set(setup["packages"]), setup["site"]

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: Any = None) -> ModuleSpec | None:
        """Return None for what other finders find, or nobody."""
        top = fullname.partition(".")[0]
        if top in self.packages:
            return PathFinder.find_spec(fullname, [self.site]) if path is None else None
        if top in sys.stdlib_module_names or not _may_miss(sys._getframe(1), top):
            return None
        found = PathFinder.find_spec(fullname, [str(Path.cwd())] if path is None and top != OURS else path)
        return found or ModuleSpec(fullname, self, is_package=True)

    def find_distributions(self, context: Any) -> Iterable[Distribution]:
        """Return the metadata of the packages, for those that ask for a version."""
        return MetadataPathFinder.find_distributions(DistributionFinder.Context(name=context.name, path=[self.site]))

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module."""
        return Missing(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing."""


def _may_miss(frame: FrameType | None, top: str) -> bool:
    """Whether the statement that imports is in a cell or a module of the student's; of our modules also in ours."""
    while frame and (frame.f_globals.get("__name__") or "").startswith("importlib"):
        frame = frame.f_back
    if frame is None:
        return False
    name = frame.f_globals.get("__name__") or ""
    if name == "__main__" or (top == OURS and name.partition(".")[0] == OURS):
        return True
    return Path(frame.f_globals.get("__file__") or "/").resolve().parent == Path.cwd()


class SkipWhatIsMissing(ast.NodeTransformer):
    """Lets a cell go on after a statement that uses a missing library, such as one that draws a figure."""

    def visit_Module(self, node: ast.Module) -> ast.Module:
        """Put each statement into a `try` statement."""
        node.body = [self._guarded(statement) for statement in node.body]
        return ast.fix_missing_locations(node)

    @staticmethod
    def _guarded(statement: ast.stmt) -> ast.stmt:
        if isinstance(statement, ast.ImportFrom) and statement.module == "__future__":
            return statement
        name = getattr(statement, "name", "")  # of a function or a class
        guarded: Any = ast.parse(f"try: pass\nexcept ModuleNotFoundError as _e: _skipped[{name!r}] = str(_e)").body[0]
        guarded.body = [statement]
        return ast.copy_location(guarded, statement)


def remove_products() -> None:
    """Take matrix products and convolutions out of NumPy: its functions, and the operators of arrays."""
    import ctypes

    import numpy as np

    core = importlib.import_module("numpy._core._multiarray_umath")
    removed = {id(value) for name in PRODUCTS for value in (vars(core).get(name), vars(np).get(name)) if value}
    solvers = vars(importlib.import_module("numpy.linalg._umath_linalg")).values()
    removed |= {id(value) for value in solvers if isinstance(value, np.ufunc)}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "numpy" and module is not None:
            for attribute, value in list(vars(module).items()):
                if id(value) in removed or (attribute in PRODUCTS and callable(value)):
                    setattr(module, attribute, Missing(f"numpy.{attribute}"))
    methods = gc.get_referents(np.ndarray.__dict__)[0]
    for name in ("dot", "__matmul__", "__rmatmul__", "__imatmul__"):
        methods.pop(name, None)
    for kind in (np.ndarray, *np.ndarray.__subclasses__()):  # which have copies of its slots
        numbers = ctypes.c_void_p.from_address(id(kind) + AS_NUMBER).value or 0
        for offset in MATRIX_PRODUCTS:
            ctypes.c_void_p.from_address(numbers + offset).value = None
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(np.ndarray))


def install(setup: dict[str, Any]) -> None:
    """Leave only the libraries of a setup in this process; before any student code runs.

    Args:
        setup: As in the docstring of the module.
    """
    # why, by what the skipped statement would have defined
    builtins._skipped = {}  # pyright: ignore[reportAttributeAccessIssue]
    sys.meta_path.insert(0, Finder(setup))
    if "jax" in setup["packages"]:
        sys.path.append(setup["site"])
        importlib.import_module("flatbuffers")  # it looks for NumPy on the path alone, when it is imported
        sys.path.remove(setup["site"])
    if not setup["products"]:
        with contextlib.suppress(ImportError):
            importlib.import_module("numba")  # it looks the products up when it is imported
        remove_products()


def run_kernel() -> None:
    """Run cells until the standard input ends."""
    cell_runner = importlib.import_module("mlhood.grading.rpc.cell_runner")
    cell_runner.run(SkipWhatIsMissing())


if __name__ == "__main__":
    install(json.loads(sys.argv[1]))
    run_kernel()
