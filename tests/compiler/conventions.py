"""Conventions that passes over graphs and passes over programs share."""

import ast
import inspect


def assert_module_of_a_pass(run):
    """A pass is a module with one public function and numbered rules."""
    module = inspect.getmodule(run)
    functions = [node.name for node in ast.parse(inspect.getsource(module)).body if isinstance(node, ast.FunctionDef)]
    assert [name for name in functions if not name.startswith("_")] == [run.__name__]
    assert "1. " in module.__doc__
    assert "->" in module.__doc__
