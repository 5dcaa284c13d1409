"""The lists of the closed world: what code may use that is marked automatically, read from `closed_world.toml`."""

from __future__ import annotations

import itertools
import tomllib
from pathlib import Path

from mlhood.grading.checks.scopes import is_within

FILE = Path(__file__).with_name("closed_world.toml")
_LISTS = tomllib.loads(FILE.read_text(encoding="utf-8"))


def _words(section: str, key: str) -> frozenset[str]:
    return frozenset(_LISTS[section][key].split())


ALLOWED = _words("modules", "numeric") | _words("modules", "standard_library") | _words("modules", "course")
PARENTS = _words("modules", "parents")
REFUSED = _words("modules", "refused")
PASSABLE = _words("modules", "passable")
PARTS = {module: frozenset(names.split()) for module, names in _LISTS["parts"].items()}
DYNAMIC_NAMES = _words("names", "dynamic")
BY_NAME = _words("names", "by_name")
ATTRIBUTE_GETTERS = _words("names", "attribute_getters")
DIRECT = _words("names", "direct")
DECORATORS = _words("names", "decorators")
SPECIAL = _words("attributes", "special")
DEFINED_SPECIAL = SPECIAL - {"__class__"} | _words("attributes", "defined")
STORED_SPECIAL = _words("attributes", "stored_special")
DYNAMIC_ATTRIBUTES = _words("attributes", "dynamic")
HARMLESS = _words("attributes", "harmless")
MUTATING_METHODS = _words("attributes", "mutating")
WRITABLE = _words("attributes", "writable")
CODE_MAGICS = _words("magics", "code")
HARMLESS_MAGICS = _words("magics", "harmless")
EXTENSIONS = _words("magics", "extensions")
SHELL_MAGICS = _words("magics", "shell")
COMMANDS = _words("shell", "commands")
INSTALLERS = _words("shell", "installers")
# keyword arguments with which a library runs or changes what cannot be read, and the values with which it does not
HARMLESS_VALUES: dict[str, tuple[object, ...]] = {
    "allow_pickle": (False,),
    "weights_only": (True,),
    "assigned": (),
    "updated": (),
    "eval_str": (False,),
}


def is_allowed(dotted: str) -> bool:
    """Whether a module, or something in it, is among what can be marked automatically."""
    if any(is_within(dotted, part) for part in REFUSED):
        return False
    parents = itertools.accumulate(dotted.split("."), "{}.{}".format)
    return dotted in PARENTS or any(parent in ALLOWED for parent in parents)


def has_refused_parts(module: str) -> bool:
    """Whether something in a module is not among what can be marked automatically, although the module is."""
    return any(is_within(part, module) for part in REFUSED)


def is_passable(module: str) -> bool:
    """Whether a module may be used as a value, so that nobody can read which parts of it are used."""
    return module not in PARTS and (module in PASSABLE or not has_refused_parts(module))


def is_writable(dotted: str) -> bool:
    """Whether a notebook may change this part of a library."""
    return any(is_within(dotted, part) for part in WRITABLE)
