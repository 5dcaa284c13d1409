"""Chains of element-wise operations on float32 as native calls: one loop, whatever the number of operations.

    prepare((("Add", (), (0, 1)), ("Relu", (), (2,))), shapes=[(8, 64, 56, 56), (64, 1, 1)], out_shape=(8, 64, 56, 56))

computes max(x0 + x1, 0).
"""

from __future__ import annotations

from collections.abc import Sequence

from mlhood.errors import KernelError
from mlhood.kernels.codegen import elementwise_kernel, jit, vector_math
from mlhood.kernels.codegen.elementwise_kernel import Operand
from mlhood.kernels.codegen.steps import OPERATIONS, Step
from mlhood.kernels.codegen.target import Target, host
from mlhood.kernels.loop_nest import broadcast_strides, collapsed, loop_values
from mlhood.kernels.native import NativeCall, native_call

__all__ = ["OPERATIONS", "Step", "checked_steps", "prepare"]

_ATTRIBUTES = {"Constant": (1, 1), "Pow": (1, 1), "LeakyRelu": (0, 1), "Gelu": (0, 1)}
_ATTRIBUTES |= dict.fromkeys(("Clip", "Elu", "HardSigmoid"), (0, 2))
_ATTRIBUTES |= dict.fromkeys(set(OPERATIONS) - set(_ATTRIBUTES), (0, 0))


def prepare(
    steps: Sequence[Step], shapes: Sequence[Sequence[int]], out_shape: Sequence[int], target: Target | None = None
) -> NativeCall:
    """Return a call that evaluates a chain of operations at each element of contiguous float32 arrays.

    Its operands are "x0", "x1", ... and "out"; "out" may be the memory of an input of the same shape.

    Args:
        steps: (operation, attributes, operands): a name in `OPERATIONS`, the values of its attributes in ONNX's order,
            and the indices of its operands, where i < len(shapes) is input i and others are results of earlier steps.
            The last one's result is stored. A `Constant` has its value as attribute and no operand.
        shapes: Shapes of the inputs, which are broadcast to that of the result by NumPy's rules.
        out_shape: Shape of the result.
        target: The processor; this machine's by default.

    Raises:
        KernelError: If an operation is unknown, its operands or attributes are invalid, or a shape does not fit.
    """
    target = target or host()
    plan = checked_steps(steps, len(shapes))
    if not plan:
        raise KernelError("no operation to evaluate", expected="one step or more", got=list(steps))
    dimensions = collapsed(out_shape, [broadcast_strides(shape, out_shape) for shape in (out_shape, *shapes)])
    names = elementwise_kernel.operand_names(len(shapes))
    last = dimensions[-1]
    one_vector = last.size == target.lanes and len(dimensions) > 1
    if one_vector:
        dimensions = dimensions[:-1]
    columns = dimensions[-1]
    kinds = tuple(Operand(bool(v), bool(c)) for v, c in zip(last.strides, columns.strides, strict=True))[1:]
    values = loop_values(dimensions, names, target.lanes if one_vector else 1)
    kernel = jit.load(elementwise_kernel.build, target, plan, kinds, one_vector)
    label = "+".join(name for name, _, _ in plan)
    return native_call(kernel, elementwise_kernel.fields(len(shapes)), values, names, name=label)


def checked_steps(steps: Sequence[Step], inputs: int) -> tuple[Step, ...]:
    """Return steps with plain attributes, as the key of the object code contains them.

    Args:
        steps: See `prepare`.
        inputs: Number of inputs.

    Raises:
        KernelError: If an operation is unknown, or its operands or attributes are invalid.
    """
    return tuple(_checked(step, inputs + i) for i, step in enumerate(steps))


def _checked(step: Step, available: int) -> Step:
    name, attributes, operands = step
    if name not in OPERATIONS:
        raise KernelError("unknown operation", expected=", ".join(sorted(OPERATIONS)), got=repr(name))
    if len(operands) != OPERATIONS[name] or not all(0 <= index < available for index in operands):
        expected = f"{OPERATIONS[name]} indices of inputs or earlier steps, less than {available}"
        raise KernelError("invalid operands", where=name, expected=expected, got=list(operands))
    plain = tuple(value if isinstance(value, str | None) else float(value) for value in attributes)
    least, most = _ATTRIBUTES[name]
    if not least <= len(plain) <= most:
        raise KernelError("wrong number of attributes", where=name, expected=f"{least} to {most}", got=attributes)
    if name == "Pow" and plain[0] not in vector_math.POWERS:
        raise KernelError("unsupported exponent", where=name, expected=list(vector_math.POWERS), got=attributes)
    return name, plain, tuple(int(index) for index in operands)
