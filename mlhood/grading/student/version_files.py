"""The files of the student version that are not notebooks: texts, linked pages, and its part of the package.

Students get the modules that their machines need, with the data beside them. A module is needed if it is one of the
roots, or if a notebook, a page that one links to, or a needed module imports it, be it in a function or for a type
checker. A text counts as an import if it is the name of a module, alone or before a colon: so processes, kernels and
lazy attributes name what they load. An import right after `try:` does not count: its module may be missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath

import nbformat
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from mlhood.grading.notebooks.questions import QUESTIONS_FILE
from mlhood.grading.projects.collect import DECLARATION
from mlhood.grading.projects.package_files import SOLUTIONS_FILE, VARIANTS_FILE

CONTAINER = (".devcontainer/devcontainer.json", ".devcontainer/install.sh")  # for Codespaces and VS Code

PICTURES = (".png", ".svg")
LINKED = (".md", *PICTURES)

CPU_INDEX = "https://download.pytorch.org/whl/cpu"

END = "# for the course's authors and instructors"  # the comment in pyproject.toml after what students get

TEMPLATES = Path(__file__).parent / "templates"
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


def render(template: str, **context: object) -> str:
    """Return the text of a file from its template, in which `[[ name ]]` stands for a value."""
    environment = Environment(  # noqa: S701 (of files that are not HTML)
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        variable_start_string="[[",
        variable_end_string="]]",
        block_start_string="[%",
        block_end_string="%]",
    )
    return environment.get_template(f"{template}.j2").render(context, index=CPU_INDEX)


def text_files(notebooks: list[str]) -> dict[str, str]:
    """Return the texts for a course of these notebooks: README, workflow of GitHub Classroom, and ignored files."""
    ids = {name: Path(name).stem.lower() for name in notebooks}
    names = ", ".join(f"`{name}`" for name in notebooks)
    return {
        "README.md": render("README.md", notebooks=names, first=notebooks[0]),
        ".github/workflows/classroom.yml": render("classroom.yml", ids=ids),
        ".gitignore": render("gitignore"),
    }


def student_project(text: str) -> str:
    """Return the part of the course's `pyproject.toml` that students get: how to install the package."""
    return text.partition(END)[0].rstrip() + "\n"


def package_files(root: Path) -> dict[str, str]:
    """Return the text files of the package, by their paths from the root."""
    paths = sorted(path for path in (root / "mlhood").rglob("*") if path.is_file() and not path.is_symlink())
    sources = [path for path in paths if "__pycache__" not in path.parts and not path.name.startswith(".")]
    return {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in sources}


def linked_files(root: Path, notebooks: Iterable[nbformat.NotebookNode]) -> dict[str, bytes]:
    """Return the course's pages and pictures that the text of notebooks links to, and the pictures of those pages.

    Args:
        root: The folder of the course, with the notebooks in it. Only files inside of it are linked files.
        notebooks: Of the version.

    Returns:
        Contents by path from the root.
    """
    texts = [cell.source for notebook in notebooks for cell in notebook.cells if cell.cell_type == "markdown"]
    found = {path for text in texts for path in _targets(text, root, root, LINKED)}
    for page in [path for path in found if path.suffix == ".md"]:
        found |= set(_targets(page.read_text(encoding="utf-8"), page.parent, root, PICTURES))
    return {path.relative_to(root.resolve()).as_posix(): path.read_bytes() for path in sorted(found)}


def _targets(text: str, folder: Path, root: Path, suffixes: tuple[str, ...]) -> Iterator[Path]:
    """Yield the files with some suffixes that a text in a folder links to, resolved."""
    for target in re.findall(r"\]\(([^)\s#]+)", text):
        if ":" in target or PurePosixPath(target).suffix not in suffixes:
            continue
        path = (folder / target).resolve()
        if path.is_file() and path.is_relative_to(root.resolve()):
            yield path


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
    if path.name in FOR_GRADERS or path.match("mlhood/grading/*.md") or path.match("mlhood/grading/student/*/*"):
        return False
    packages = (f"{parent}/__init__.py" for parent in path.parents)
    return next((name for name in packages if name in package), "") in needed
