"""Questions that need the student's functions and JAX, asked in their process; the answers are claims.

Arrays come as NumPy's and are handed to the student's functions as JAX's. Keys of random numbers are made here.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from mlhood.jaxlab.operators import network, with_jax
from mlhood.measure import compare

MOST_STEPS = 10_000
SLEEP = 0.25


def on_device(values: Any) -> Any:
    """The same tree with arrays of JAX in place of NumPy's."""
    return jax.tree.map(lambda one: jnp.asarray(one) if isinstance(one, np.ndarray) else one, values)


def plain(values: Any) -> Any:
    """The same tree with arrays of NumPy in place of JAX's."""
    return jax.tree.map(lambda one: np.asarray(one) if isinstance(one, jax.Array) else one, values)


def jitted(function: Callable, args: list[Any], static: list[Any] | tuple[Any, ...] = ()) -> Any:
    """What a function returns under `jax.jit`; `static` arguments come last and stay plain."""
    return jax.jit(lambda *traced: function(*traced, *static))(*on_device(args))


def vmapped(function: Callable, args: list[Any]) -> Any:
    """What a function returns under `jax.vmap`, over the first axis of all arguments."""
    return jax.vmap(lambda *traced: function(*traced))(*on_device(args))


def ran(function: Callable, args: list[Any], static: list[Any] | tuple[Any, ...] = ()) -> Any:
    """What a function returns: compiled, as that is quicker than operation by operation, or else as it is."""
    try:
        return jitted(function, args, static)
    except jax.errors.JAXTypeError:
        return function(*on_device(args), *static)


# -- P5.1


def treed(function: Callable, state: dict[str, np.ndarray]) -> dict[str, Any]:
    """What a function makes of a state: the `tree`, and whether its leaves are `all_jax`."""
    tree = function(state)
    return {"tree": tree, "all_jax": all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(tree))}


def ran_resnet(function: Callable, state: dict[str, np.ndarray], x: np.ndarray) -> list[Any]:
    """Logits on a right tree and on the student's own, with their own `block` and with a right one; or what failed."""
    right = network.tree(state)
    found = []
    for tree, block in ((right, None), (right, right_block), ("own", None), ("own", right_block)):
        try:
            with named(function, **({} if block is None else {"block": block})) as inner:
                params = _names(inner)["to_tree"](state) if tree == "own" else tree
                found.append(ran(inner, [params, x]))
        except NotImplementedError:
            raise
        except Exception as error:  # the next way may do
            found.append(f"{type(error).__name__}: {error}"[:500])
    return found


def right_block(params: Any, x: Any, stride: int) -> Any:
    """A basic block."""
    return network.block(with_jax, params, x, stride)


def right_tree(state: Mapping[str, Any]) -> Any:
    """Nested dictionaries of arrays of JAX."""
    return on_device(network.tree(state))


def right_resnet(params: Any, x: Any) -> Any:
    """The logits of ResNet-18."""
    return network.forward(with_jax, params, x)


def _names(function: Callable) -> dict[str, Any]:
    return getattr(inspect.unwrap(function), "__globals__", {})


@contextmanager
def named(function: Callable, **instead: Any) -> Iterator[Callable]:
    """Give a function other values for some names of the notebook; what it was compiled to before is left aside."""
    inner = inspect.unwrap(function) if instead else function
    names = _names(function)
    before = {name: names[name] for name in instead if name in names}
    names.update(instead)
    try:
        yield inner
    finally:
        for name in instead:
            names.pop(name, None)
        names.update(before)


# -- P5.3


def compile_times(function: Callable) -> dict[str, Any]:
    """What a function says of how long other functions take to compile.

    Returns:
        `told`: the seconds, of functions that sleep for `SLEEP` while they are traced; `whole`: how long each call took
        as a whole; `traced`: how often each was traced; `ran`: how often each was run.
    """
    report: dict[str, Any] = {"told": [], "whole": [], "traced": [], "ran": []}
    for size in (3, 5):
        traced, ran = [], []

        def sleepy(x: jax.Array, y: jax.Array, traced: list = traced, ran: list = ran) -> jax.Array:
            traced.append(1)
            time.sleep(SLEEP)
            jax.debug.callback(lambda value: ran.append(1), x[0])
            return jnp.tanh(x) * y

        start = time.perf_counter()
        report["told"].append(function(sleepy, jnp.ones(size), jnp.ones(size)))
        report["whole"].append(time.perf_counter() - start)
        jax.effects_barrier()
        report["traced"].append(len(traced))
        report["ran"].append(len(ran))
    return report


def measured(row: str) -> float:
    """How many times as long as compiled JAX the package's own NumPy takes for a row of the table, at least."""
    from mlhood.jaxlab.operators.cases import cases

    case = cases()[row]
    compiled, arguments = jax.jit(case.with_jax), jax.device_put(case.arguments)
    sides = {"jax": lambda: compiled(*arguments), "numpy": lambda: case.no_jax(*case.arguments)}
    return compare(sides, threads=1).ratio("numpy", "jax").low


# -- P5.4


def bounded(function: Callable, argument: float) -> dict[str, Any]:
    """Call a function of one number under `jax.jit`, where no loop of `lax` runs for ever.

    Returns:
        The `result`, whether a loop was `endless`, and the names of the `operations` that were traced.
    """
    original, reached = lax.while_loop, []

    def while_loop(cond_fun: Callable, body_fun: Callable, init_val: Any) -> Any:
        def goes_on(carried: tuple[Any, Any]) -> Any:
            return jnp.logical_and(cond_fun(carried[1]), carried[0] < MOST_STEPS)

        steps, value = original(goes_on, lambda carried: (carried[0] + 1, body_fun(carried[1])), (0, init_val))
        jax.debug.callback(lambda count: reached.append(bool(count >= MOST_STEPS)), steps)
        return value

    inner = inspect.unwrap(function)  # what was compiled before has the loop without a bound
    imported = {name: while_loop for name, value in _names(inner).items() if value is original}
    lax.while_loop = while_loop
    try:
        with named(inner, **imported):
            traced = jax.jit(lambda value: inner(value)).trace(jnp.float32(argument))
            result = traced.lower().compile()(jnp.float32(argument))
            jax.effects_barrier()
    finally:
        lax.while_loop = original
    return {"result": result, "endless": any(reached), "operations": _operations(traced.jaxpr.jaxpr)}


def running(function: Callable, values: list[float]) -> list[list[Any]]:
    """Means and states that a function returns for one number after the other, under `jax.jit`."""
    compiled = jax.jit(lambda x, state: function(x, state))
    state, found = (jnp.float32(0), jnp.float32(0)), []
    for value in values:
        mean, state = compiled(jnp.float32(value), state)
        found.append([mean, list(state)])
    return found


def repeated(function: Callable, value: float, state: list[float]) -> list[Any]:
    """What a function returns for the same arguments, three times: as it is twice, and under `jax.jit`."""
    arguments = jnp.float32(value), tuple(map(jnp.float32, state))
    calls = (function, function, jax.jit(lambda x, state: function(x, state)))
    return [_flat(call(*arguments)) for call in calls]


def _flat(values: Any) -> list[Any]:
    return [float(one) for leaf in jax.tree.leaves(values) for one in np.ravel(leaf)]  # a state may be one array


def dropped(function: Callable, seed: int, x: np.ndarray, rate: float) -> Any:
    """What `dropout` makes of x with a key of this seed, under `jax.jit`."""
    return jax.jit(lambda key, values: function(key, values, rate))(jax.random.key(seed), jnp.asarray(x))


# -- P5.7


def small_loss(params: Mapping[str, Any], x: Any, y: Any) -> Any:
    """The mean cross entropy of a network of two layers: x [N, D], labels y [N]."""
    hidden = jnp.tanh(x @ params["hidden"]["w"] + params["hidden"]["b"])
    logits = hidden @ params["out"]["w"] + params["out"]["b"]
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], axis=1).mean()


def per_example(function: Callable, params: Any, x: np.ndarray, y: np.ndarray) -> Any:
    """Each example's gradient of `small_loss`, as a function of the student's works it out."""
    return function(small_loss, *on_device([params, x, y]))


def clipped(function: Callable, gradients: Any, limit: float) -> Any:
    """What a function makes of a tree of gradients."""
    return function(on_device(gradients), limit)


def equations(function: Callable, params: Any, x: np.ndarray, y: np.ndarray) -> int:
    """How many equations `per_example` has in its jaxpr, with those inside of others."""
    found = jax.make_jaxpr(lambda *args: function(small_loss, *args))(*on_device([params, x, y]))
    return _size(found.jaxpr)


def _size(jaxpr: Any) -> int:
    return sum(1 + sum(map(_size, _inside(one))) for one in jaxpr.eqns)


def _inside(equation: Any) -> list[Any]:
    parts = jax.tree.leaves(list(equation.params.values()), is_leaf=lambda one: hasattr(one, "jaxpr"))
    closed = [getattr(one, "jaxpr", one) for one in parts]
    return [one for one in closed if hasattr(one, "eqns")]


# -- P5.8


def square_loss(params: Mapping[str, Any], x: Any, y: Any) -> Any:
    """The mean square of x @ w + b - y."""
    return jnp.mean((x @ params["w"] + params["b"] - y) ** 2)


def trained_steps(
    function: Callable, params: Any, batches: list[Any], rate: float, momentum: float
) -> dict[str, list[Any]]:
    """What steps that a function makes for SGD with momentum do.

    Returns:
        `params` after each step, the `losses` that it returned, and `kept`: the leaves of parameters and of the
        optimiser's state that were still there after they had been passed.
    """
    import optax

    optimizer = optax.sgd(rate, momentum=momentum)
    step = function(optimizer, square_loss)
    now = jax.tree.map(jnp.array, params)  # copies: memory of NumPy's own cannot be donated
    state = optimizer.init(now)
    report: dict[str, list[Any]] = {"params": [], "losses": [], "kept": []}
    for x, y in batches:
        passed = {"params": now, "state": state}
        now, state, loss = step(now, state, jnp.asarray(x), jnp.asarray(y))
        report["params"].append(plain(jax.tree.map(jnp.copy, now)))  # what NumPy looks at cannot be donated
        report["losses"].append(float(loss))
        report["kept"].append(
            {name: sum(not leaf.is_deleted() for leaf in _arrays(part)) for name, part in passed.items()}
        )
    return report


def _arrays(values: Any) -> list[jax.Array]:
    return [leaf for leaf in jax.tree.leaves(values) if isinstance(leaf, jax.Array)]


# -- P5.9


@contextmanager
def _refusals() -> Iterator[None]:
    """Where JAX has no rule for an operation, it says so by the error that stands in cells that are not written yet."""
    try:
        yield
    except NotImplementedError as error:
        if str(error):
            raise LookupError(str(error)) from error
        raise


@_refusals()
def quantized(function: Callable, x: np.ndarray, scale: float) -> dict[str, Any]:
    """What `fake_quantize` makes of x: its `value`, and the name of its `dtype`."""
    found = function(jnp.asarray(x), scale=scale)
    return {"value": found, "dtype": str(getattr(found, "dtype", type(found).__name__))}


@_refusals()
def quantized_compiled(function: Callable, x: np.ndarray, scale: float) -> dict[str, Any]:
    """The same under `jax.jit`, with the shape and dtype that JAX works out without numbers."""
    fixed = partial(function, scale=scale)
    shape = jax.eval_shape(lambda values: fixed(values), jnp.asarray(x))
    value = jax.jit(lambda values: fixed(values))(jnp.asarray(x))
    return {"value": value, "shape": list(shape.shape), "dtype": str(shape.dtype)}


@_refusals()
def quantized_derivatives(function: Callable, x: np.ndarray, tangent: np.ndarray, scale: float) -> dict[str, Any]:
    """Derivatives of `fake_quantize`: forward along `tangent`, and backward of the sum of it times `tangent`."""
    fixed = partial(function, scale=scale)
    primal, along = jnp.asarray(x), jnp.asarray(tangent)
    forward = jax.jvp(lambda values: fixed(values), (primal,), (along,))[1]
    backward = jax.grad(lambda values: jnp.sum(fixed(values) * along))(primal)
    return {"forward": forward, "backward": backward}


@_refusals()
def quantized_batch(function: Callable, x: np.ndarray, scale: float, axis: int) -> Any:
    """`fake_quantize` under `jax.vmap` along an axis, which comes back in its place."""
    return jax.vmap(lambda values: function(values, scale=scale), in_axes=axis, out_axes=axis)(jnp.asarray(x))


@_refusals()
def quantized_primitives(function: Callable, x: np.ndarray, scale: float) -> list[str]:
    """The names of the operations in the jaxpr of `fake_quantize`, with those inside of others."""
    found = jax.make_jaxpr(lambda values: function(values, scale=scale))(jnp.asarray(x))
    return _operations(found.jaxpr)


def _operations(jaxpr: Any) -> list[str]:
    return [name for one in jaxpr.eqns for name in (one.primitive.name, *_named_inside(one))]


def _named_inside(equation: Any) -> list[str]:
    return [name for inner in _inside(equation) for name in _operations(inner)]
