"""The part of the package that students get: the modules that their machines need, with the data beside them.

A module is needed if it is one of the roots, or if a notebook, a page that one links to, or a needed module imports
it, be it in a function or for a type checker. A text counts as an import if it is the name of a module, alone or
before a colon: so processes, kernels and lazy attributes name what they load. An import right after `try:` does not
count: its module may be missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath

from mlhood.grading.notebooks.questions import QUESTIONS_FILE
from mlhood.grading.projects.collect import DECLARATION
from mlhood.grading.projects.package_files import SOLUTIONS_FILE, VARIANTS_FILE

ROOTS = (
    "mlhood.__main__",
    # modules with commands
    "mlhood.compiler.commands",
    "mlhood.grading.commands",
    "mlhood.jaxlab.cluster.commands",
    # a program that is started by its path, and one that a workflow starts
    "mlhood.exchange.draw",
    "mlhood.grading.reports.github_classroom",
)
# solutions, parts and templates of them, and rubrics of written questions
FOR_GRADERS = (SOLUTIONS_FILE, QUESTIONS_FILE, VARIANTS_FILE)
# parsing the package into syntax trees would take longer than all else that a release does
IMPORT = re.compile(
    r"(?<!try:\n)^ *(?:import (?P<module>mlhood[\w.]*)|from (?P<package>mlhood[\w.]*) import (?P<names>\([^)]*\)|.*))"
    r"|\"(?P<text>mlhood\.[\w.]+)[\":]",
    re.MULTILINE,
)


def student_files(package: Mapping[str, str], texts: Iterable[str]) -> dict[str, str]:
    """Return the files of the package that students get.

    Args:
        package: The text of every file of the package, by its path.
        texts: Code and text whose imports are needed: of the solved notebooks, and of pages.
    """
    needed = _needed_modules(package, texts)
    return {name: text for name, text in package.items() if _is_needed(PurePosixPath(name), package, needed)}


def _needed_modules(package: Mapping[str, str], texts: Iterable[str]) -> set[str]:
    """Return the paths of the modules that a student's machine needs."""
    modules = {
        name.removesuffix(".py").replace("/", ".").removesuffix(".__init__"): name
        for name in package
        if name.endswith(".py")
    }
    todo = [*ROOTS, *(module for module, path in modules.items() if DECLARATION.search(package[path]))]
    todo += [module for text in texts for module in imported(text)]
    needed = set()
    while todo:
        module = todo.pop()
        if module in modules and modules[module] not in needed:
            needed.add(modules[module])
            todo += [module.rpartition(".")[0], *imported(package[modules[module]])]
    return needed


def imported(source: str) -> Iterator[str]:
    """Yield the dotted names that code imports from the package, which are modules or names in them."""
    for match in IMPORT.finditer(source):
        yield match["module"] or match["package"] or match["text"]
        yield from (f"{match['package']}.{name}" for name in re.findall(r"\w+", match["names"] or ""))


def _is_needed(path: PurePosixPath, package: Mapping[str, str], needed: set[str]) -> bool:
    """Whether a file is a needed module, or data of a needed package, in its folder or in one without modules."""
    if path.suffix == ".py":
        return str(path) in needed
    if path.name in FOR_GRADERS or path.match("mlhood/grading/*.md"):
        return False
    packages = (f"{parent}/__init__.py" for parent in path.parents)
    return next((name for name in packages if name in package), "") in needed
