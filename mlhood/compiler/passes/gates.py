"""Fusion of activations that multiply x by a gate, from the nodes that exporters write for them.

1. Clip(x + 3, 0, 6) / 6           ->  HardSigmoid(x) with the slope 1 / 6
2. x HardSigmoid(x), slope 1 / 6   ->  HardSwish(x)
3. x Clip(x + 3, 0, 6) / 6         ->  HardSwish(x)
4. x Sigmoid(x)                    ->  Silu(x)

Factors may come in any order; a division by 6 may be a product with 1 / 6. Not applied if a value in between has
another use or is an output of the graph.

Sources: A. Howard et al., "Searching for MobileNetV3", ICCV 2019, section 5.2; S. Elfwing et al., "Sigmoid-weighted
linear units for neural network function approximation in reinforcement learning", Neural Networks 2018.
"""

from __future__ import annotations

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.values import Node
from mlhood.compiler.operators.arithmetic import Div, Mul
from mlhood.compiler.operators.elementwise import FUNCTIONS, Clip, HardSigmoid, Silu
from mlhood.compiler.passes.patterns import is_close, monomial, only_user, orders, plus, replace_pattern
from mlhood.compiler.passes.rewriting import defining_node, sweep

_HARD_SWISH, _SIGMOID = (
    next(function for function in FUNCTIONS if function.__name__ == name) for name in ("HardSwish", "Sigmoid")
)


def fuse_gates(graph: Graph) -> bool:
    """Fuse HardSigmoid, HardSwish and SiLU from their parts; return whether anything changed."""
    changed = sweep(graph, _fuse_clip, Clip)
    return sweep(graph, _fuse_product, Mul) or changed


def _fuse_clip(graph: Graph, node: Node) -> bool:
    shifted = plus(node.inputs[0], 3.0)
    if shifted is None or getattr(node.operator, "limits", None) != (0, 6):
        return False
    x, addition = shifted
    if x.type != node.outputs[0].type:
        return False
    interior, last, has_x, factor = [addition, node], node, False, 1.0
    while (user := only_user(graph, last.outputs[0])) is not None and isinstance(user.operator, Mul | Div):
        other = user.inputs[1 if user.inputs[0] is last.outputs[0] else 0]
        part = None if other is None else monomial(other, x)
        if part is None or part.nodes or part.degree + has_x > 1 or not part.factor:
            break
        if isinstance(user.operator, Div) and (part.degree or other is not user.inputs[1]):
            break
        factor *= 1 / part.factor if isinstance(user.operator, Div) else part.factor
        has_x, last = has_x or part.degree == 1, user
        interior.append(user)
        if is_close(factor, 1 / 6):
            break
    if not is_close(factor, 1 / 6) or last.outputs[0].type != x.type:
        return False
    operator = _HARD_SWISH() if has_x else HardSigmoid(1 / 6, 0.5)  # rules 3 and 1
    return replace_pattern(graph, last, [each for each in interior if each is not last], operator, x)


def _fuse_product(graph: Graph, node: Node) -> bool:
    for x, gated in orders(node):
        gate = defining_node(gated, HardSigmoid, _SIGMOID)
        if gate is None or gate.inputs[0] is not x or x.type != node.outputs[0].type:
            continue
        if isinstance(gate.operator, _SIGMOID):
            return replace_pattern(graph, node, [gate], Silu(), x)  # rule 4
        if is_close(gate.operator.attributes["alpha"], 1 / 6) and gate.operator.attributes["beta"] == 0.5:
            return replace_pattern(graph, node, [gate], _HARD_SWISH(), x)  # rule 2
    return False
