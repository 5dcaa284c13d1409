"""The backend of `torch.compile`: Dynamo captures graphs, AOTAutograd makes them functional, the compiler runs them.

    model = torch.compile(model, backend="mlhood")

What the compiler does not have is run by torch, so the result is the same for every model: values, strides, shared
memory and errors. Weights are constants; what records gradients runs forward in the compiler and backward in torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule

from mlhood.compiler.backends.targets import check_target
from mlhood.compiler.torch_compile.partition import partition
from mlhood.compiler.torch_compile.subgraph import Subgraph
from mlhood.errors import CompilerError

_OPTIONS = ("target",)
DEFAULT_TARGET = "cpu"


@dataclass(frozen=True)
class Capture:
    """One graph that Dynamo captured.

    Args:
        code: The graph as a Python function of torch.
        parts: What the compiler runs.
        left: Why torch runs each of the other nodes, by name.
    """

    code: str
    parts: tuple[Subgraph, ...]
    left: Mapping[str, str]

    def __str__(self) -> str:
        lines = []
        for part in self.parts:
            if part.reason is not None:
                lines.append(f"  {part.name}: torch, {part.reason}")
            elif part.graph is None:
                lines.append(f"  {part.name}: not run yet")
            else:
                lines.append(f"  {part.name}: {len(part.graph.nodes)} nodes: {', '.join(part.graph.nodes)}")
        lines += [f"  torch runs {name}: {reason}" for name, reason in self.left.items()]
        return "\n".join(lines)


class Backend:
    """A backend of `torch.compile` that remembers what was captured.

    Args:
        target: The target to run on, one of `mlhood.compiler.backends.targets.TARGETS`.

    Attributes:
        captures: The captured graphs, in order.

    Raises:
        CompilerError: The target is unknown.
    """

    def __init__(self, target: str = DEFAULT_TARGET) -> None:
        check_target(target)
        self.target = target
        self.captures: list[Capture] = []

    def __call__(self, module: GraphModule, inputs: Sequence[Any], **_: Any) -> Callable[..., Any]:
        """Return a function that runs a captured graph; called by Dynamo."""
        from torch._dynamo.backends.common import aot_autograd  # loads modules that only torch.compile needs

        # no decompositions: what torch runs, forward and backward, are eager's own operators
        compile_captured = aot_autograd(
            fw_compiler=self._forward, bw_compiler=_leave_to_torch, inference_compiler=self._forward
        )
        return compile_captured(module, inputs)

    def _forward(self, module: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        from torch._functorch._aot_autograd.utils import make_boxed_func
        from torch._guards import TracingContext
        from torch._subclasses.fake_tensor import unset_fake_temporarily

        context = TracingContext.try_get()
        static = context.fw_metadata.static_input_indices if context and context.fw_metadata else []
        placeholders = [node.name for node in module.graph.nodes if node.op == "placeholder"]
        weights = {placeholders[i] for i in static if i < len(placeholders)}
        code = module.code
        with unset_fake_temporarily():  # constants of the graph are real tensors
            parts, left = partition(module, weights, self.target)
        self.captures.append(Capture(code, tuple(parts), left))
        return make_boxed_func(module.forward)


def _leave_to_torch(module: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    from torch._functorch._aot_autograd.utils import make_boxed_func

    return make_boxed_func(module.forward)


def mlhood(module: GraphModule, inputs: Sequence[Any], **arguments: Any) -> Callable[..., Any]:
    """Return a function that runs a captured graph: the backend that `torch.compile` finds by the name "mlhood".

    Args:
        module: The captured graph.
        inputs: Its inputs, parameters among them.
        arguments: `options`, a dict: {"target": "cpu"}; others of `torch.compile` are of no consequence.

    Raises:
        CompilerError: An option or the target is unknown.
    """
    options = dict(arguments.get("options") or {})
    if unknown := sorted(options.keys() - set(_OPTIONS)):
        raise CompilerError("unknown option of the backend", expected=", ".join(_OPTIONS), got=", ".join(unknown))
    return Backend(options.get("target", DEFAULT_TARGET))(module, inputs)


def explain(model: Callable[..., Any], *inputs: Any, target: str = DEFAULT_TARGET) -> tuple[Capture, ...]:
    """Run a model once, compiled, and return the graphs that were captured: more than one where Dynamo breaks.

    Args:
        model: A module, or a function of tensors.
        inputs: Its arguments.
        target: The target to run on.

    Raises:
        CompilerError: The target is unknown.
    """
    backend = Backend(target)
    with torch.no_grad():
        torch.compile(model, backend=backend, dynamic=False)(*inputs)
    return tuple(backend.captures)
