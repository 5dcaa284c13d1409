"""Random programs that write their memory again and again: what lowering never makes, and passes must survive."""

from hypothesis import strategies as st

from mlhood.compiler.lir.program import Program
from tests.compiler.lir.building import program_of

MATRIX, FLAT = "float32[2, 3]", "float32[6]"
# text of an operator; number of inputs; whether it is elementwise
OPERATORS = (
    ("copy", 1, True),
    ("copy", 1, True),
    ("tanh", 1, True),
    ("relu", 1, True),
    ("elementadd", 2, True),
    ("elementsub", 2, True),
    ("softmax", 1, False),
)


@st.composite
def programs(draw) -> Program:
    """Draw a program on three activations, the input %x and the outputs %y and %z, with views of all but %y."""
    names = ["a", "b", "c"]
    lines = [f"alloc %{name} : {MATRIX}" for name in names]
    for name in (*names, "x", "z"):
        lines.append(f"tensorview %{name}.flat : {FLAT} = %{name}")
        lines.append(f"tensorview %{name}.again : {MATRIX} = %{name}.flat")
    written = {"x"}
    for _ in range(draw(st.integers(1, 12))):
        lines.append(_step(draw, written, [*names, "y", "z"]))
    for output in {"y", "z"} - written:
        lines.append(f"copy @out %{output}, @in %{draw(st.sampled_from(sorted(written - {'y', 'z'})))}")
    return program_of(*lines, *(f"dealloc %{name}" for name in names), declare=(f"output %z : {MATRIX}",))


def _step(draw, written, targets):
    operator, arity, elementwise = draw(st.sampled_from(OPERATORS))
    flat = operator != "softmax" and draw(st.booleans())
    target = draw(st.sampled_from([name for name in targets if not (flat and name == "y")]))
    readable = sorted(name for name in written if not (flat and name == "y"))
    readable = [name for name in readable if elementwise or name != target] or ["x"]
    inputs = [draw(st.sampled_from(readable)) for _ in range(arity)]
    written.add(target)
    suffixes = [".flat"] if flat else ["", ".again"]
    result, *operands = [
        f"%{name}{'' if name == 'y' else draw(st.sampled_from(suffixes))}" for name in (target, *inputs)
    ]
    attributes = " {axes=[1]}" if operator == "softmax" else ""
    return f"{operator} @out {result}, {', '.join(f'@in {name}' for name in operands)}{attributes}"
