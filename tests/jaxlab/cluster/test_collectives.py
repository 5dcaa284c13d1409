"""Collectives parsed from HLO in all of XLA's syntaxes, and a ring's bytes against a simulated ring."""

import jax
import numpy as np
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P

from mlhood.errors import XlaError
from mlhood.jaxlab.cluster.collectives import Collective, collectives, ring_bytes
from mlhood.jaxlab.xla.hlo import parse
from mlhood.jaxlab.xla.views import view


def parse_line(text):
    module = f"HloModule m\n\nENTRY main {{\n  a = f32[8]{{0}} parameter(0)\n  ROOT x = {text}\n}}\n"
    return collectives(parse(module))


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ("{{0,4},{1,5}}", ((0, 4), (1, 5))),
        ("[2,4]<=[8]", ((0, 1, 2, 3), (4, 5, 6, 7))),
        ("[4,2]<=[2,4]T(1,0)", ((0, 4), (1, 5), (2, 6), (3, 7))),
        ("mesh['axis_0'=2,'axis_1'=1,'axis_2'=4] {'axis_0'}", ((0, 4), (1, 5), (2, 6), (3, 7))),
        ("mesh['a'=2,'b'=2] {'b'}", ((0, 1), (2, 3))),
        ("mesh['a'=2,'b'=2] {'a','b'}", ((0, 1, 2, 3),)),
    ],
)
def test_groups_are_parsed(groups, expected):
    (parsed,) = parse_line(f"f32[8]{{0}} all-reduce(a), channel_id=1, replica_groups={groups}, to_apply=%sum")
    assert (parsed.kind, parsed.bytes, parsed.groups) == ("all-reduce", 32, expected)


@pytest.mark.parametrize("groups", ["mesh['a'=4] {'a':(1)2}", "mesh['a'=4] {'b'}", "{}", "somehow"])
def test_groups_in_an_unknown_syntax_are_rejected(groups):
    with pytest.raises(XlaError, match="groups"):
        parse_line(f"f32[8]{{0}} all-reduce(a), replica_groups={groups}")


@pytest.mark.parametrize(
    ("text", "kind", "size"),
    [
        ("(f32[], f32[8]{0}) all-reduce(a, a), replica_groups={{0,1,2,3}}", "all-reduce", 36),
        ("f32[32]{0} all-gather(a), replica_groups={{0,1,2,3}}, dimensions={0}", "all-gather", 128),
        ("f32[2]{0} reduce-scatter(a), replica_groups={{0,1,2,3}}, dimensions={0}", "reduce-scatter", 32),
        ("f32[8]{0} all-to-all(a), replica_groups={{0,1,2,3}}, dimensions={0}", "all-to-all", 32),
        ("f32[8]{0} all-reduce-start(a), replica_groups={{0,1,2,3}}", "all-reduce", 32),
        ("(f32[8]{0}, f32[32]{0}) all-gather-start(a), replica_groups={{0,1,2,3}}", "all-gather", 128),
        ("(f32[8]{0}, f32[2]{0}) reduce-scatter-start(a), replica_groups={{0,1,2,3}}", "reduce-scatter", 32),
    ],
)
def test_bytes_are_those_of_the_full_data(text, kind, size):
    (parsed,) = parse_line(text)
    assert (parsed.kind, parsed.bytes, parsed.devices) == (kind, size, 4)


def test_a_permutations_pairs_are_its_groups():
    (parsed,) = parse_line("f32[8]{0} collective-permute(a), source_target_pairs={{0,1},{1,0}}")
    assert parsed.groups == ((0, 1), (1, 0))
    assert parsed.sent == 32
    text = "(f32[8]{0}, f32[8]{0}, u32[], u32[]) collective-permute-start(a), source_target_pairs={{0,1},{1,0}}"
    assert parse_line(text) == [Collective("x", "collective-permute", 32, ((0, 1), (1, 0)))]


def test_the_end_of_an_asynchronous_collective_is_not_counted():
    assert parse_line("f32[8]{0} all-reduce-done(a)") == []


FUNCTIONS = {
    "all-reduce": lambda x: lax.psum(x, "model"),
    "all-gather": lambda x: lax.all_gather(x, "model", tiled=True),
    "reduce-scatter": lambda x: lax.psum_scatter(x, "model", tiled=True),
    "all-to-all": lambda x: lax.all_to_all(x, "model", 0, 0, tiled=True),
    "collective-permute": lambda x: lax.ppermute(x, "model", [(0, 1), (1, 2), (2, 3), (3, 0)]),
}


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_each_kind_is_found_in_compiled_modules(kind, mesh_2x4):
    function = jax.shard_map(
        FUNCTIONS[kind], mesh=mesh_2x4, in_specs=P(("data", "model")), out_specs=P("data"), check_vma=False
    )
    (collective,) = collectives(view(function, np.zeros(8 * 12, np.float32)).module("optimized"))
    assert collective.kind == kind
    # a device has 12 numbers
    assert collective.bytes == 48 * (4 if kind == "all-gather" else 1)
    if kind == "collective-permute":
        assert set(collective.groups) == {(0, 1), (1, 2), (2, 3), (3, 0), (4, 5), (5, 6), (6, 7), (7, 4)}
    else:
        assert collective.groups == ((0, 1, 2, 3), (4, 5, 6, 7))


def simulate_ring(values, adding):
    """Pass each device's parts [devices, devices, part] around the ring once, added or copied; return bytes sent."""
    devices = len(values)
    sent = np.zeros(devices)
    for step in range(devices - 1):
        # a device forwards what it has just received; when adding, the sum starts with its own part
        parts = [(source - step + (0 if adding else 1)) % devices for source in range(devices)]
        messages = [values[source, part].copy() for source, part in enumerate(parts)]
        for source, (part, message) in enumerate(zip(parts, messages, strict=True)):
            target = (source + 1) % devices
            values[target, part] = values[target, part] + message if adding else message
            sent[source] += message.nbytes
    return sent


@pytest.mark.parametrize("devices", [1, 2, 3, 8])
def test_a_simulated_ring_computes_the_sum_with_these_bytes(devices):
    values = np.random.default_rng(0).standard_normal((devices, devices, 5))
    total, size = values.sum(axis=0), values[0].nbytes
    scattered = simulate_ring(values, adding=True)
    np.testing.assert_allclose(scattered, ring_bytes("reduce-scatter", size, devices))
    gathered = simulate_ring(values, adding=False)
    np.testing.assert_allclose(gathered, ring_bytes("all-gather", size, devices))
    np.testing.assert_allclose(values, np.broadcast_to(total, values.shape))
    np.testing.assert_allclose(scattered + gathered, ring_bytes("all-reduce", size, devices))
