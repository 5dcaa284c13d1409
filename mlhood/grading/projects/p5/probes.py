"""Probes that run in the student's process, with JAX; their answers are claims to be checked.

NumPy arrays are converted to JAX arrays before they are passed to the student's functions. Random keys are made here.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any
from unittest import mock

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jax.experimental import io_callback

from mlhood.grading.checks.probes import patched_globals
from mlhood.grading.projects.p5.programs import STRANGE
from mlhood.grading.rpc.guard import CHANGED, guarded
from mlhood.jaxlab.operators import with_jax
from mlhood.jaxlab.operators.cases import OperatorCase

MAX_ITERATIONS = 10_000
FILTERS = "FCHW"  # the order of the axes of a convolution's weights
KEY = np.zeros(2, np.uint32)  # the data of a key


def on_device(values: Any) -> Any:
    """Convert the NumPy arrays of a tree to JAX arrays."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf, values)


def on_host(values: Any) -> Any:
    """Convert the JAX arrays of a tree to NumPy arrays."""
    return jax.tree.map(lambda leaf: np.asarray(leaf) if isinstance(leaf, jax.Array) else leaf, values)


def exported(function: Callable, args: list[Any], **options: Any) -> bytes:
    """Return the program that a function is traced to, with its results as a list; `options` are those of `jax.jit`.

    What it prints while it runs is left out, since that cannot be exported.
    """
    with mock.patch.multiple(jax.debug, print=_nothing, callback=_nothing):
        program = jax.export.export(jax.jit(lambda *traced: jax.tree.leaves(function(*traced)), **options))(*args)
    return bytes(program.serialize())


def _nothing(*arguments: Any, **options: Any) -> None:
    """Do nothing."""


def program(function: Callable, args: list[Any]) -> bytes:
    """Export a function of arrays."""
    return exported(function, on_device(args))


def vmapped(function: Callable, args: list[Any]) -> bytes:
    """Export a function under `jax.vmap`, over the first axis of all arguments."""
    return exported(jax.vmap(lambda *traced: function(*traced)), on_device(args))


def run(function: Callable, args: list[Any], static: list[Any] | tuple[Any, ...] = ()) -> Any:
    """Call a function under `jax.jit`, which is faster, or without it if it cannot be traced; `static` come last."""
    try:
        return on_host(jax.jit(lambda *traced: function(*traced, *static))(*on_device(args)))
    except (jax.errors.JAXTypeError, jax.errors.JAXIndexError):
        return on_host(function(*on_device(args), *static))


# -- P5.1


def raised_tree(function: Callable, state: dict[str, np.ndarray], amount: int) -> dict[str, Any]:
    """Return the `tree` that a function makes of a state, with an amount added by `at`, and what is `broken`.

    Only JAX's arrays have `at`; other leaves stay. They may share the memory of the arrays that they are made of, since
    nothing can write to them.
    """
    tree, broken = guarded(function, [state])
    if amount:
        tree = jax.tree.map(lambda leaf: leaf.at[...].add(amount) if hasattr(leaf, "at") else leaf, tree)
    return {"tree": tree, "broken": broken if broken == CHANGED else ""}


def run_resnet(
    function: Callable, state: dict[str, np.ndarray], tree: Mapping[str, Any] | None, x: np.ndarray, filters: str
) -> Any:
    """Return logits.

    Args:
        function: The student's `resnet`.
        state: A state.
        tree: Its tree; None for the student's.
        x: Images.
        filters: The order of the axes of filters, with which the course's `block` runs; empty for the student's.
    """
    inner = inspect.unwrap(function)  # a program compiled before contains the student's block
    replacements = {"block": partial(reference_block, filters=filters)} if filters else {}
    with patched_globals(inner, **replacements):
        params = inner.__globals__["to_tree"](state) if tree is None else tree
        return run(inner if filters else function, [params, x])


def reference_block(params: Any, x: Any, stride: int, filters: str) -> Any:
    """Run a basic block, whose tree has the axes of filters in this order."""
    params = _reordered(params, filters, FILTERS)

    def conv_norm(conv: Any, norm: Any, x: Any, stride: int, padding: int) -> Any:
        y = with_jax.conv2d(x, conv["weight"], stride=stride, padding=padding)
        return with_jax.batch_norm(y, norm["running_mean"], norm["running_var"], norm["weight"], norm["bias"])

    y = with_jax.relu(conv_norm(params["conv1"], params["bn1"], x, stride, 1))
    y = conv_norm(params["conv2"], params["bn2"], y, 1, 1)
    shortcut = params.get("downsample")
    return with_jax.relu(y + (conv_norm(shortcut["0"], shortcut["1"], x, stride, 0) if shortcut else x))


def _reordered(params: Any, axes: str, order: str) -> Any:
    indices = [axes.index(axis) for axis in order]
    return jax.tree.map(lambda leaf: leaf.transpose(indices) if leaf.ndim == 4 else leaf, params)


# -- P5.3


class Sleepy:
    """A function that sleeps while it is traced, and its program while it is compiled; both for given seconds.

    Attributes:
        function: The function, one object, by which JAX remembers it.
        ran: How often its program ran.
    """

    def __init__(self, tracing: float, compiling: float) -> None:
        self.tracing, self.compiling = tracing, compiling
        self.function, self.ran = self._tanh, 0

    def _tanh(self, x: jax.Array, y: jax.Array) -> jax.Array:
        time.sleep(self.tracing)
        jax.debug.callback(self._run, x[0])
        return jnp.tanh(x) * y

    def _run(self, value: Any) -> None:
        self.ran += 1


def compile_time(function: Callable, slow: Sleepy, size: int) -> dict[str, Any]:
    """Return the `seconds` that the student's `compile_seconds` returns, and how often the program `ran` meanwhile."""
    arguments, original = (jnp.ones(size), jnp.ones(size)), jax.stages.Lowered.compile

    def compile_slowly(lowered: Any, *args: Any, **kwargs: Any) -> Any:
        if "tanh" in lowered.as_text():  # not another program
            time.sleep(slow.compiling)
        return original(lowered, *args, **kwargs)

    slow.ran = 0
    with mock.patch.object(jax.stages.Lowered, "compile", compile_slowly):
        seconds = function(slow.function, *arguments)
    jax.effects_barrier()
    return {"seconds": seconds, "ran": slow.ran}


def called_sides(function: Callable, x: np.ndarray, y: np.ndarray, drawn: np.ndarray) -> dict[str, Any]:
    """Call each side of the student's `sides` twice, on a case whose functions' results tell how they are called.

    That with JAX is called once before, and then with other numbers in the case's arrays.

    Args:
        function: The student's.
        x: An argument of the case.
        y: The other argument of the case.
        drawn: Without JAX, a call returns x times its number, the second or third, plus y; only y if the arguments are
            not NumPy's. With JAX it returns x times another one of the numbers, each time that the function is traced,
            plus y and the number of the call; x is left out if it is no argument then.

    Returns:
        The results of each side.
    """
    numbers = drawn.astype(np.float32)
    results: dict[str, list[Any]] = {"JAX": [], "No-JAX": []}
    current, factors = [numbers[0]], iter([numbers[0], *numbers[3:]])
    # where JAX has to copy them, since they are not aligned
    x, y = arrays = [np.append(np.float32(0), array)[1:].reshape(array.shape) for array in (x, y)]

    def no_jax(x: Any, y: Any) -> Any:
        return x * current[0] + y if isinstance(x, np.ndarray) and isinstance(y, np.ndarray) else np.asarray(y)

    def with_jax(x: Any, y: Any) -> Any:
        run = io_callback(lambda: current[0], jax.ShapeDtypeStruct((), np.float32))
        return (x if isinstance(x, Tracer) else 0) * next(factors) + y + run

    both = function(OperatorCase(no_jax, with_jax, (x, y)))
    jax.block_until_ready(both["JAX"]())
    for side, values in results.items():
        for array in arrays:
            array += 1 if side == "JAX" else -1
        for number in numbers[1:3]:
            current[0] = number
            result = both[side]()
            values.append(np.asarray(result) if side == "JAX" or isinstance(result, np.ndarray) else None)
    return results


# -- P5.4


def root_program(function: Callable, numbers: list[float]) -> dict[str, Any]:
    """Export a function of one number.

    Returns:
        Its `program`, and for which of the numbers a `lax.while_loop` is `endless`, or would be.
    """
    original, exceeded = lax.while_loop, []

    def while_loop(cond_fun: Callable, body_fun: Callable, init_val: Any) -> Any:
        def condition(carry: tuple[Any, Any]) -> Any:
            return jnp.logical_and(cond_fun(carry[1]), carry[0] < MAX_ITERATIONS)

        iterations, value = original(condition, lambda carry: (carry[0] + 1, body_fun(carry[1])), (0, init_val))
        jax.debug.callback(lambda count: exceeded.append(bool(count >= MAX_ITERATIONS)), iterations)
        return value

    inner, endless = inspect.unwrap(function), []  # a program compiled before contains the unbounded loop
    names = getattr(inner, "__globals__", {})
    imported = {name: while_loop for name, value in names.items() if value is original}
    with mock.patch.object(lax, "while_loop", while_loop), patched_globals(inner, **imported):
        compiled = jax.jit(lambda value: inner(value))
        for number in numbers:
            exceeded.clear()
            compiled(jnp.float32(number))
            jax.effects_barrier()
            endless.append(any(exceeded))
    return {"program": exported(inner, [jnp.float32(1)]), "endless": endless}


def mean_program(function: Callable) -> bytes:
    """Export `running_mean` of a number and a state of two numbers."""
    return flat_program(function, [jnp.float32(1), (jnp.float32(1),) * 2])


def dropout_program(function: Callable, x: np.ndarray, rate: float) -> bytes:
    """Export `dropout` of the data of a key and an array."""
    return exported(lambda key, values: function(jax.random.wrap_key_data(key), values, rate), [KEY, jnp.asarray(x)])


def repeated(function: Callable, value: float, state: list[float]) -> list[Any]:
    """Call `running_mean` three times with the same arguments: twice directly, and once under `jax.jit`."""
    arguments = jnp.float32(value), tuple(map(jnp.float32, state))
    calls = (function, function, jax.jit(lambda x, state: function(x, state)))
    results = [jax.tree.leaves(call(*arguments)) for call in calls]  # a state may be an array
    return [[float(number) for leaf in leaves for number in np.ravel(leaf)] for leaves in results]


def dropped(function: Callable, seeds: list[int], x: np.ndarray, rate: float) -> list[Any]:
    """Call `dropout` on an array with a key of each seed, under one `jax.jit`."""
    compiled = jax.jit(lambda key, values: function(key, values, rate))
    return [compiled(jax.random.key(seed), jnp.asarray(x)) for seed in seeds]


# -- P5.7


def small_loss(params: Mapping[str, Any], x: Any, y: Any) -> Any:
    """Return the mean cross entropy of a network of two layers: x [N, D], labels y [N]."""
    hidden = jnp.tanh(x @ params["hidden"]["w"] + params["hidden"]["b"])
    logits = hidden @ params["out"]["w"] + params["out"]["b"]
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], axis=1).mean()


def per_example(function: Callable, params: Any, x: np.ndarray, y: np.ndarray) -> Any:
    """Call the student's `per_example` on `small_loss`."""
    return run(partial(function, small_loss), [params, x, y])


def per_example_program(function: Callable, params: Any, x: np.ndarray, y: np.ndarray) -> bytes:
    """Export `per_example` on `small_loss`, as a function of the leaves of its arguments."""
    return flat_program(lambda *arguments: function(small_loss, *arguments), [params, x, y])


def flat_program(function: Callable, args: list[Any], **options: Any) -> bytes:
    """Export a function as one of the leaves of its arguments, in the order of `jax.tree.leaves`."""
    leaves, tree = jax.tree.flatten(on_device(args))
    return exported(lambda *flat: function(*jax.tree.unflatten(tree, flat)), leaves, **options)


def _equations(jaxpr: Any) -> Iterator[Any]:
    """Yield the equations of a jaxpr, nested ones included."""
    for equation in jaxpr.eqns:
        yield equation
        for nested in _nested_jaxprs(equation):
            yield from _equations(nested)


def _nested_jaxprs(equation: Any) -> list[Any]:
    parts = jax.tree.leaves(list(equation.params.values()), is_leaf=lambda part: hasattr(part, "jaxpr"))
    jaxprs = [getattr(part, "jaxpr", part) for part in parts]
    return [jaxpr for jaxpr in jaxprs if hasattr(jaxpr, "eqns")]


# -- P5.8


def square_loss(params: Mapping[str, Any], x: Any, y: Any) -> Any:
    """Return the mean square of x @ w + b - y."""
    return jnp.mean((x @ params["w"] + params["b"] - y) ** 2)


def training_steps(
    function: Callable,
    optimizer: str,
    options: Mapping[str, float],
    params: Any,
    batches: list[list[np.ndarray]],
    names: list[str],
) -> dict[str, list[Any]]:
    """Run the steps that `make_step` returns for an optimiser of optax; `names` are those of the results of a step.

    Returns:
        For each step the `params` after it and its loss (`value`), and the `norm` if a step returns one.
    """
    import optax

    made = getattr(optax, optimizer)(**options)
    step = function(made, square_loss)
    params = jax.tree.map(jnp.array, params)  # copies: NumPy's own memory cannot be donated
    state = made.init(params)
    report: dict[str, list[Any]] = {name: [] for name in names if name != "state"}
    for batch in batches:
        results = step(params, state, *on_device(batch))
        if not isinstance(results, tuple) or len(results) != len(names):
            raise TypeError(f"a step returns ({', '.join(names)})")
        named = dict(zip(names, results, strict=True))
        params, state = named["params"], named["state"]
        for name, values in report.items():
            values.append(on_host(jax.tree.map(jnp.copy, named[name])))  # NumPy's views cannot be donated
    return report


def step_program(function: Callable, params: Any, x: np.ndarray, y: np.ndarray, names: list[str]) -> bytes:
    """Export a step of SGD with momentum: (leaves of params, state, x and y) -> leaves of params and state.

    The program donates what the compiled functions in the step do.
    """
    import optax

    optimizer = optax.sgd(0.125, momentum=0.75)
    step, state = function(optimizer, square_loss), optimizer.init(on_device(params))
    args = [params, state, x, y]
    leaves, tree = jax.tree.flatten(on_device(args))
    jaxpr = jax.make_jaxpr(lambda *flat: step(*jax.tree.unflatten(tree, flat)))(*leaves).jaxpr
    donated = {
        jaxpr.invars.index(variable)
        for equation in jaxpr.eqns
        for variable, given in zip(equation.invars, equation.params.get("donated_invars", ()), strict=False)
        if given and variable in jaxpr.invars
    }
    places = [names.index(name) for name in ("params", "state")]
    return flat_program(lambda *args: [step(*args)[i] for i in places], args, donate_argnums=sorted(donated))


def trained(function: Callable, x: np.ndarray, y: np.ndarray, names: list[str]) -> Any:
    """Return the parameters that `train` returns with a `make_step` that works, as on the host."""
    import optax

    def make_step(optimizer: Any, loss: Callable) -> Callable:
        @partial(jax.jit, donate_argnums=(0, 1))
        def step(params: Any, state: Any, images: Any, labels: Any) -> tuple[Any, ...]:
            value, gradient = jax.value_and_grad(loss)(params, images, labels)
            updates, state = optimizer.update(gradient, state, params)
            results = {"params": optax.apply_updates(params, updates), "state": state, "value": value}
            return tuple((results | {"norm": optax.global_norm(gradient)})[name] for name in names)

        return step

    inner = inspect.unwrap(function)
    with patched_globals(inner, make_step=make_step):
        return on_host(inner(x, y)[0])


def trained_by(
    function: Callable, x: np.ndarray, y: np.ndarray, names: list[str], pixel: list[int], drawn: np.ndarray
) -> dict[str, Any]:
    """Call `train` with a `make_step` whose steps return drawn numbers, one after another.

    Args:
        function: The student's `train`.
        x: Images, each with its label at a pixel.
        y: The labels.
        names: Those of the results of a step.
        pixel: Its row and column.
        drawn: The loss of each step, which has `STRANGE` more for a batch of other data than x and y, and all of the
            biases in `fc` after it.

    Returns:
        The `losses` that it returns, a `bias` of the weights that it returns, and the rule `broken`.
    """
    left = iter(drawn.tolist())

    def make_step(optimizer: Any, loss: Callable) -> Callable:
        def step(params: Any, state: Any, images: Any, labels: Any) -> tuple[Any, ...]:
            number = next(left)
            strange = not np.array_equal(np.asarray(images)[:, 0, pixel[0], pixel[1]], np.asarray(labels))
            value = jnp.float32(number + STRANGE * strange)
            params = params | {"fc.bias": jnp.full_like(params["fc.bias"], number)}
            return tuple({"params": params, "state": state, "value": value, "norm": value}[name] for name in names)

        return step

    inner = inspect.unwrap(function)
    with patched_globals(inner, make_step=make_step):
        (params, losses), broken = guarded(inner, [x, y])
    return {"losses": losses, "bias": params["fc.bias"][0], "broken": broken if broken == CHANGED else ""}


# -- P5.9: `fake_quantize` takes its parameters by name

Params = Mapping[str, float]


def quantized(function: Callable, x: np.ndarray, parameters: Params) -> dict[str, Any]:
    """Return the `value` of `fake_quantize` and the name of its `dtype`."""
    value = function(jnp.asarray(x), **parameters)
    return {"value": value, "dtype": str(getattr(value, "dtype", type(value).__name__))}


def quantized_program(function: Callable, x: np.ndarray, parameters: Params) -> bytes:
    """Export `fake_quantize`."""
    return exported(partial(function, **parameters), [jnp.asarray(x)])


def quantized_derivatives(function: Callable, x: np.ndarray, tangent: np.ndarray, parameters: Params) -> dict[str, Any]:
    """Differentiate `fake_quantize` times `tangent`: `forward`, `backward`, and `backward` of each row, `compiled`."""
    primal, along = jnp.asarray(x), jnp.asarray(tangent)

    def product(values: Any, along: Any) -> Any:
        return jnp.sum(function(values, **parameters) * along)

    forward = jax.jvp(lambda values: function(values, **parameters), (primal,), (along,))[1]
    compiled = jax.jit(jax.vmap(jax.grad(product)))(primal, along)
    return {"forward": forward, "backward": jax.grad(product)(primal, along), "compiled": compiled}


def quantized_batch(function: Callable, x: np.ndarray, parameters: Params, axis: int) -> Any:
    """Call `fake_quantize` under `jax.vmap` along an axis, which is also the result's batch axis."""
    return jax.vmap(lambda values: function(values, **parameters), in_axes=axis, out_axes=axis)(jnp.asarray(x))


def quantized_primitives(function: Callable, x: np.ndarray, parameters: Params, other: np.ndarray) -> dict[str, Any]:
    """Trace `fake_quantize`.

    Returns:
        The names of the `operations` in the jaxpr, nested ones included, the most `inputs` of one that is
        `fake_quantize`, the `value` that it computes, and what it computes if this operation returns `other`
        (`replaced`).
    """
    jaxpr = jax.make_jaxpr(lambda values: function(values, **parameters))(jnp.asarray(x))
    evaluate = partial(_evaluate, jaxpr.jaxpr, jaxpr.consts, {})
    try:
        value = evaluate(jnp.asarray(x))
    except Exception:  # without a rule for values, it may still have one for compiling
        value = jax.jit(lambda values: evaluate(values))(x)
    replaced = _evaluate(jaxpr.jaxpr, jaxpr.consts, {"fake_quantize": jnp.asarray(other)}, jnp.asarray(x))
    equations = list(_equations(jaxpr.jaxpr))
    operations = [equation.primitive.name for equation in equations]
    inputs = max((len(item.invars) for item in equations if item.primitive.name == "fake_quantize"), default=0)
    return {"operations": operations, "inputs": inputs, "value": value[0], "replaced": replaced[0]}


def _evaluate(jaxpr: Any, consts: Any, results: Mapping[str, Any], *args: Any) -> list[Any]:
    """Evaluate a jaxpr in which operations of these names have these results."""
    values = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *args], strict=True))
    read = lambda atom: atom.val if hasattr(atom, "val") else values[atom]  # noqa: E731
    for equation in jaxpr.eqns:
        inputs, nested = list(map(read, equation.invars)), equation.params.get("jaxpr")
        if equation.primitive.name in results:
            outputs: Any = results[equation.primitive.name]
        elif hasattr(nested, "consts"):
            outputs = _evaluate(nested.jaxpr, nested.consts, results, *inputs)
        else:
            outputs = equation.primitive.bind(*inputs, **equation.params)
        outputs = outputs if isinstance(outputs, list | tuple) else [outputs]
        values.update(zip(equation.outvars, outputs, strict=True))
    return list(map(read, jaxpr.outvars))
