"""The table of operators: one module a family, one class an operator."""

from __future__ import annotations

from mlhood.compiler.hir.operator import Operator
from mlhood.compiler.operators import elementwise

_FAMILIES = (elementwise,)

OPERATORS: dict[str, type[Operator]] = {
    operator.__name__: operator for family in _FAMILIES for operator in family.OPERATORS
}
