"""Mutants of Python source: one small, plausible mistake in each.

As tests are measured by mutation testing (R. DeMillo, R. Lipton, F. Sayward, Hints on Test Data Selection, Computer
11(4), 1978), so are a task's checks: each mutant of a right solution is a wrong one, unless it is equivalent.
"""

from __future__ import annotations

import ast
import copy
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

BOUNDARIES = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}
OPERATORS = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Div,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
# functions that a student may mistake for another, by the last part of their name
CONFUSED = {
    "min": "max",
    "max": "min",
    "any": "all",
    "all": "any",
    "sum": "max",
    "floor": "ceil",
    "ceil": "floor",
    "zeros": "ones",
    "argmax": "argmin",
    "argmin": "argmax",
    "maximum": "minimum",
    "minimum": "maximum",
    "round": "floor",
    "rint": "floor",
    "float32": "float64",
    "int8": "int32",
    "mean": "sum",
    "append": "insert",
}
DROPPED_CALLS = ("copy", "astype", "sorted", "reversed", "abs", "ascontiguousarray")
SYMMETRIC = ("max", "min", "maximum", "minimum", "add", "multiply", "gcd", "lcm", "array_equal", "allclose", "isclose")
GUARDS = ("strict",)  # arguments that change nothing where the rest is right
AXES = ("axis", "dim", "axes")


@dataclass(frozen=True)
class Mutant:
    """A changed source.

    Args:
        kind: Of the mistake, in words.
        line: Number of the changed line in the original, from 1.
        change: The changed expression or statement, before and after.
        source: The whole of it.
        function: The outermost function or class that it is in, or empty.
        wrapped: Whether a wrapper changes values at run time, if there are some of the kind; see `APPLIED`.
    """

    kind: str
    line: int
    change: str
    source: str
    function: str = ""
    wrapped: bool = False


Replacements = Iterator[tuple[str, ast.AST]]


def mutants(source: str) -> list[Mutant]:
    """Return the mutants of a source, each with one mistake, in the order of its lines; none of them twice.

    Raises:
        SyntaxError: The source is not Python.
    """
    tree = ast.parse(source)
    found: dict[str, Mutant] = {}
    functions = _functions(tree)
    guards = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.keyword) and node.arg in GUARDS}
    for position, node in enumerate(ast.walk(tree)):
        if id(node) in guards:
            continue
        for kind, replacement in _replacements(node):
            text = _replaced(tree, position, replacement)
            if text is None or text in found or text == ast.unparse(tree):
                continue
            change = _change(_text(node), _text(replacement))
            line = getattr(node, "lineno", 1)
            found[text] = Mutant(kind, line, change, text, functions.get(line, ""))
    for mutant in _wrapped(tree):
        found[mutant.source] = mutant
    return sorted(found.values(), key=lambda mutant: mutant.line)


def _replaced(tree: ast.Module, position: int, replacement: ast.AST) -> str | None:
    """Return the source with one node replaced, or None if it is not Python any more."""
    changed = copy.deepcopy(tree)
    target = next(node for i, node in enumerate(ast.walk(changed)) if i == position)
    for parent in ast.walk(changed):
        for name, value in ast.iter_fields(parent):
            if value is target:
                setattr(parent, name, replacement)
            elif isinstance(value, list) and any(item is target for item in value):
                setattr(parent, name, [replacement if item is target else item for item in value])
    try:
        text = ast.unparse(ast.fix_missing_locations(changed))
        compile(text, "mutant", "exec")
    except (SyntaxError, ValueError, TypeError, AttributeError):
        return None
    return text


def _replacements(node: ast.AST) -> Replacements:
    rule = RULES.get(type(node))
    if rule is not None:
        yield from rule(node)


def _comparison(node: ast.Compare) -> Replacements:
    for i, operator in enumerate(node.ops):
        if other := BOUNDARIES.get(type(operator)):
            changed = copy.copy(node)
            changed.ops = [*node.ops[:i], other(), *node.ops[i + 1 :]]
            yield "another comparison", changed


def _operation(node: ast.BinOp) -> Replacements:
    if other := OPERATORS.get(type(node.op)):
        yield "another operator", ast.BinOp(node.left, other(), node.right)
    yield "a term is dropped", node.left
    yield "a term is dropped", node.right
    if isinstance(node.op, ast.Sub | ast.Div | ast.FloorDiv | ast.MatMult | ast.Mod | ast.Pow):
        yield "swapped operands", ast.BinOp(node.right, node.op, node.left)


def _constant(node: ast.Constant) -> Replacements:
    value = node.value
    if isinstance(value, bool):
        yield "the other truth value", ast.Constant(not value)
    elif isinstance(value, int):
        yield "off by one", ast.Constant(value + 1)
        yield "off by one", ast.Constant(value - 1)
    elif isinstance(value, float):
        yield "another constant", ast.Constant(2 * value + 1)


def _call(node: ast.Call) -> Replacements:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name == "range":
        last = node.args[min(1, len(node.args) - 1)]
        shorter = list(node.args)
        shorter[min(1, len(node.args) - 1)] = ast.BinOp(last, ast.Sub(), ast.Constant(1))
        yield "off by one", ast.Call(node.func, shorter, node.keywords)
    if name in DROPPED_CALLS:
        value = node.args[0] if isinstance(node.func, ast.Name) and node.args else getattr(node.func, "value", None)
        if value is not None and not (isinstance(value, ast.Name) and value.id in ("np", "jnp", "torch")):
            yield "a call is dropped", value
    in_order = name not in SYMMETRIC and not any(isinstance(each, ast.Starred) for each in node.args)
    if len(node.args) >= 2 and in_order:
        yield "swapped arguments", ast.Call(node.func, [node.args[1], node.args[0], *node.args[2:]], node.keywords)
    for i, keyword in enumerate(node.keywords):
        if keyword.arg in GUARDS:
            continue
        rest = [*node.keywords[:i], *node.keywords[i + 1 :]]
        yield ("wrong axis" if keyword.arg in AXES else "an argument is left out"), ast.Call(node.func, node.args, rest)


def _name(node: ast.Attribute | ast.Name) -> Replacements:
    name = node.attr if isinstance(node, ast.Attribute) else node.id
    other = CONFUSED.get(name)
    if other is None or not isinstance(node.ctx, ast.Load):
        return
    changed = copy.copy(node)
    setattr(changed, "attr" if isinstance(node, ast.Attribute) else "id", other)
    yield "another function", changed


def _tuple(node: ast.Tuple | ast.List) -> Replacements:
    if len(node.elts) >= 2 and isinstance(node.ctx, ast.Load):
        yield "wrong order", type(node)([node.elts[1], node.elts[0], *node.elts[2:]], ast.Load())


def _boolean(node: ast.BoolOp) -> Replacements:
    yield "and for or, or for and", ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    for i in range(len(node.values)):
        rest = [*node.values[:i], *node.values[i + 1 :]]
        yield "a condition is dropped", rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)


def _unary(node: ast.UnaryOp) -> Replacements:
    yield "a sign or a not is dropped", node.operand


def _branch(node: ast.If | ast.IfExp) -> Replacements:
    for value in (True, False):
        changed = copy.copy(node)
        changed.test = ast.Constant(value)
        yield "a special case only", changed


def _loop(node: ast.For) -> Replacements:
    changed = copy.copy(node)
    changed.body = [*node.body, ast.Break()]
    yield "the loop ends early", changed


def _statement(node: ast.Expr | ast.AugAssign) -> Replacements:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return  # a docstring
    yield "a statement is left out", ast.Pass()
    if isinstance(node, ast.AugAssign):
        yield "assigned instead of added", ast.Assign([node.target], node.value)


def _assignment(node: ast.Assign) -> Replacements:
    """`y = x + b` becomes `x += b; y = x`, which modifies what the caller passed."""
    value = node.value
    if isinstance(value, ast.BinOp) and isinstance(value.left, ast.Name) and len(node.targets) == 1:
        target = ast.Name(value.left.id, ast.Store())
        inplace = ast.AugAssign(target, value.op, value.right)
        after = ast.Assign(node.targets, ast.Name(value.left.id, ast.Load()))
        yield "in place", ast.If(ast.Constant(True), [inplace, after], [])


def _return(node: ast.Return) -> Replacements:
    if node.value is None:
        return
    yield "a constant for an expression", ast.Return(ast.Constant(1))
    yield "nothing is returned", ast.Return(ast.Constant(None))


def _subscript(node: ast.Slice) -> Replacements:
    for name in ("lower", "upper", "step"):
        if getattr(node, name) is not None:
            changed = copy.copy(node)
            setattr(changed, name, None)
            yield "a bound is dropped", changed


RULES: dict[type[ast.AST], Callable[..., Replacements]] = {
    ast.Compare: _comparison,
    ast.BinOp: _operation,
    ast.Constant: _constant,
    ast.Call: _call,
    ast.Attribute: _name,
    ast.Name: _name,
    ast.Tuple: _tuple,
    ast.List: _tuple,
    ast.BoolOp: _boolean,
    ast.UnaryOp: _unary,
    ast.If: _branch,
    ast.IfExp: _branch,
    ast.For: _loop,
    ast.Expr: _statement,
    ast.AugAssign: _statement,
    ast.Assign: _assignment,
    ast.Return: _return,
    ast.Slice: _subscript,
}

WRAPPER = """

def _wrapped_{name}(function):
    import numpy as np
    results = []

    def convert(value, kind, to):
        if isinstance(value, dict):
            return {{key: convert(item, kind, to) for key, item in value.items()}}
        if isinstance(value, (list, tuple)):
            return type(value)(convert(item, kind, to) for item in value)
        if not isinstance(value, kind) or isinstance(value, bool):
            return value
        other = to(value)
        {applied}.extend([1] * (other is not value))
        return other

    def changed(*args, **kwargs):
        {body}

    return changed


{applied} = []
{name} = _wrapped_{name}({name})
"""
APPLIED = "_applied"  # the name in the notebook that says whether a wrapper had something to change
WRAPPED = {
    "state kept between calls": """results.append(function(*args, **kwargs))
        {applied}.extend(value for value in results[1:] if value is not None)
        return results[0]""",
    "a list for an array": """return convert(function(*args, **kwargs), np.ndarray, np.ndarray.tolist)""",
    "float for int": """return convert(function(*args, **kwargs), (int, np.integer), float)""",
    "float64 for float32": """
        single = lambda value: value.astype(np.float64) if value.dtype == np.float32 else value
        return convert(function(*args, **kwargs), np.ndarray, single)""",
    "its input is changed": """result = function(*args, **kwargs)
        for value in args:
            if isinstance(value, np.ndarray) and value.flags.writeable and value.size:
                {applied}.append(1)
                value.flat[0] = 1 - value.flat[0]
        return result""",
}


def _wrapped(tree: ast.Module) -> Iterator[Mutant]:
    """Yield a version for each function in which a wrapper changes what goes in or comes out."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and not node.decorator_list and node.args.args:
            for kind, body in WRAPPED.items():
                body = body.format(applied=APPLIED)
                text = ast.unparse(tree) + WRAPPER.format(name=node.name, body=body.strip(), applied=APPLIED)
                yield Mutant(kind, node.lineno, node.name, text, node.name, wrapped=True)


def _functions(tree: ast.Module) -> dict[int, str]:
    """Return the name of the outermost function or class of each line in one."""
    named = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    return {line: node.name for node in named for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}


def _text(node: ast.AST) -> str:
    try:
        text = ast.unparse(ast.fix_missing_locations(copy.deepcopy(node)))
    except (AttributeError, ValueError, TypeError):
        text = type(node).__name__
    return " ".join(text.split())


def _change(before: str, after: str) -> str:
    """Return both texts, shortened; from shortly before their first difference, if they begin with the same."""
    if _short(before) != _short(after):
        return f"{_short(before)} -> {_short(after)}"
    same = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(before, after, strict=False)))
    start = max(0, same - 20)
    return f"...{_short(before[start:])} -> ...{_short(after[start:])}"


def _short(line: str) -> str:
    return line if len(line) <= 60 else f"{line[:57]}..."
