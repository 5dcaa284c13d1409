"""The sources that Sphinx builds the site from: what of the course becomes a page, where it stands, and its links.

A page is what a reader reaches by links from the README, the notebooks and the how-tos: Markdown as it is, the README
of a folder, and any other text as a listing. Pictures are copied. Nothing has to be listed anywhere.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from mlhood.errors import SiteError
from mlhood.grading.notebooks.interface import INTERFACE_PAGE, PublicName, public_interface
from mlhood.grading.notebooks.notebook import course_notebooks, read
from mlhood.notebook_view.formulas import without_code
from mlhood.site.api_pages import INDEX, api_pages, source_files
from mlhood.site.listings import listing_path
from mlhood.site.notebook_page import alt_texts, notebook_page

README = "README.md"
INSTRUCTORS = "mlhood/grading/INSTRUCTORS.md"
HOW_TOS = ".github/how-to"
ABOUT = (*(f".github/{name}.md" for name in ("GLOSSARY", "CONTRIBUTING", "CHANGELOG", "SECURITY")), INTERFACE_PAGE)
PICTURES = (".png", ".svg")
# the public folder of a repository; GitHub Pages leaves it out of a site
_HIDDEN = ".github/"
_LINK = re.compile(r"(?<=\]\()[^)\s]+")
_ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:|//", re.IGNORECASE)
# a badge of GitHub's own pages, which is neither a file nor an address
_BADGE = re.compile(r"^\[!\[[^]]*\]\((?:\.\./)+[^)]*\)\]\([^)]*\)\n", re.MULTILINE)
_UNLISTED = "---\norphan: true\n---\n\n"
PAGES = (".md", ".ipynb", *PICTURES)
LISTING_SCHEME = "listing"  # of links to listings, which Sphinx does not know


@dataclass
class Sources:
    """Files for Sphinx by their paths, files to list, and the alternative texts of notebooks' pictures by digest."""

    files: dict[str, bytes] = field(default_factory=dict)
    listed: set[str] = field(default_factory=set)
    alt_texts: dict[str, str] = field(default_factory=dict)


def course_sources(root: Path) -> Sources:
    """Return the sources of the site of a course.

    Raises:
        NotebookError: There is no notebook, or one cannot be read.
        SiteError: The folder is not that of the course, or a link leads to no file.
    """
    notebooks = course_notebooks(root)
    for name in (README, "mlhood/__init__.py"):
        if not (root / name).is_file():
            raise SiteError(
                "the site can only be built from the course's repository",
                where=root,
                expected=f"a file {name}",
                todo="change to the folder of the course and run the command there",
            )
    interface = public_interface(notebooks, root)
    how_tos = [path.relative_to(root).as_posix() for path in sorted((root / HOW_TOS).glob("*.md"))]
    about = [name for name in (INSTRUCTORS, *ABOUT) if (root / name).is_file()]
    rooms = [path.relative_to(root).as_posix() for path in sorted((root / "mlhood").glob(f"*/{README}"))]
    projects = [path.name for path in notebooks]
    menus = {"Projects": projects, "How to": how_tos, "Package": rooms, "About": about}
    listed = [name for names in menus.values() for name in names]
    sources = Sources()
    waiting = [README, *listed]
    for name in waiting:  # which grows
        if _is_listed(name):
            sources.listed.add(name)
            continue
        page = _Page(root, name)
        sources.files[site_path(name)] = _source(page, interface, sources, listed)
        waiting += [target for target in page.targets if target not in waiting]
    sources.files["index.md"] += _menus(menus).encode()
    sources.files |= {name: text.encode() for name, text in api_pages(interface).items()}
    sources.listed |= source_files(interface)
    return sources


def site_path(name: str) -> str:
    """Return where a file of the repository, or a folder `a/`, stands: `.github/how-to/a.md` as `how-to/a.md`."""
    path = PurePosixPath(name.removeprefix(_HIDDEN))
    if name.endswith("/"):
        return str(path / "index.md")
    if path.name == README:
        return str(path.with_name("index.md"))
    return listing_path(str(path)) if _is_listed(name) else str(path)


def _is_listed(name: str) -> bool:
    return not name.endswith(("/", *PAGES))


@dataclass
class _Page:
    """A file of the repository, and the files that its text links to."""

    root: Path
    name: str
    targets: list[str] = field(default_factory=list)

    @property
    def path(self) -> Path:
        return self.root / self.name

    def rewritten(self, markdown: str) -> str:
        """Return a text of the page with links to the places of their targets on the site; code stays as it is."""
        pieces, end = [], 0
        for match in _LINK.finditer(without_code(markdown)):
            pieces += [markdown[end : match.start()], self._link(match[0])]
            end = match.end()
        return "".join([*pieces, markdown[end:]])

    def _link(self, link: str) -> str:
        path, mark, anchor = link.partition("#")
        if not path or _ELSEWHERE.match(link):
            return link
        target = self._target(path)
        self.targets.append(target)
        if target.endswith(".ipynb") and anchor:
            return f"#{anchor}"  # anchors of notebooks are labels, which are known everywhere
        place = posixpath.relpath(site_path(target), posixpath.dirname(site_path(self.name)) or ".")
        return f"{LISTING_SCHEME}:{place}" if _is_listed(target) else place + mark + anchor

    def _target(self, path: str) -> str:
        folder = self.path if self.path.is_dir() else self.path.parent
        target = (folder / path).resolve()
        if (target / README).is_file():
            target /= README
        if not target.exists() or not target.is_relative_to(self.root.resolve()):
            raise SiteError(
                "a link leads to no file of the course", where=self.name, got=path, todo="correct the link in the page"
            )
        name = target.relative_to(self.root.resolve()).as_posix()
        return f"{name}/" if target.is_dir() else name


def _source(
    page: _Page, interface: dict[PublicName, tuple[str, ...]], sources: Sources, listed: Iterable[str]
) -> bytes:
    suffix = page.path.suffix
    if page.path.is_dir():
        return (_UNLISTED + page.rewritten(_folder(page.path, page.name))).encode()
    if suffix in PICTURES:
        return page.path.read_bytes()
    if suffix == ".ipynb":
        notebook = read(page.path)
        sources.alt_texts |= alt_texts(notebook)
        names = [name for name, projects in interface.items() if page.path.stem in projects]
        return notebook_page(notebook, page.rewritten, names).encode()
    text = page.path.read_text(encoding="utf-8")
    head = "" if page.name in {README, *listed} else _UNLISTED
    return (head + page.rewritten(_BADGE.sub("", text))).encode()


def _folder(path: Path, name: str) -> str:
    """Return the page of a folder without a README: the modules in it."""
    names = sorted(file.name for file in path.iterdir() if file.suffix == ".py" and file.name != "__init__.py")
    return "\n".join([f"# `{name.rstrip('/')}`", "", *(f"- [{file}]({file})" for file in names), ""])


def _menus(menus: dict[str, list[str]]) -> str:
    """Return the tables of contents that the sidebar shows."""
    entries = {caption: [PurePosixPath(site_path(name)) for name in names] for caption, names in menus.items()}
    entries["API"] = [PurePosixPath(INDEX)]
    lines = []
    for caption, paths in entries.items():
        lines += ["", "```{toctree}", ":hidden:", f":caption: {caption}", ""]
        lines += [*(str(path.with_suffix("")) for path in paths), "```"]
    return "\n".join(lines) + "\n"
