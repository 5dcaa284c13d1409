"""Collectives read from HLO in all ways that XLA writes them, and a ring's bytes beside a ring that is played."""

import jax
import numpy as np
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P

from mlhood.errors import XlaError
from mlhood.jaxlab.cluster.collectives import Collective, by_axis, collectives, ring_bytes
from mlhood.jaxlab.xla.hlo import parse
from mlhood.jaxlab.xla.views import view


def line(text):
    module = f"HloModule m\n\nENTRY main {{\n  a = f32[8]{{0}} parameter(0)\n  ROOT x = {text}\n}}\n"
    return collectives(parse(module))


@pytest.mark.parametrize(
    ("groups", "read"),
    [
        ("{{0,4},{1,5}}", ((0, 4), (1, 5))),
        ("[2,4]<=[8]", ((0, 1, 2, 3), (4, 5, 6, 7))),
        ("[4,2]<=[2,4]T(1,0)", ((0, 4), (1, 5), (2, 6), (3, 7))),
        ("mesh['axis_0'=2,'axis_1'=1,'axis_2'=4] {'axis_0'}", ((0, 4), (1, 5), (2, 6), (3, 7))),
        ("mesh['a'=2,'b'=2] {'b'}", ((0, 1), (2, 3))),
        ("mesh['a'=2,'b'=2] {'a','b'}", ((0, 1, 2, 3),)),
    ],
)
def test_groups_are_read(groups, read):
    (found,) = line(f"f32[8]{{0}} all-reduce(a), channel_id=1, replica_groups={groups}, to_apply=%sum")
    assert (found.kind, found.bytes, found.groups) == ("all-reduce", 32, read)


@pytest.mark.parametrize("groups", ["mesh['a'=4] {'a':(1)2}", "mesh['a'=4] {'b'}", "{}", "somehow"])
def test_groups_that_are_not_known_are_refused(groups):
    with pytest.raises(XlaError, match="groups"):
        line(f"f32[8]{{0}} all-reduce(a), replica_groups={groups}")


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
def test_bytes_are_of_the_whole(text, kind, size):
    (found,) = line(text)
    assert (found.kind, found.bytes, found.devices) == (kind, size, 4)


def test_a_permutations_pairs_are_its_groups():
    (found,) = line("f32[8]{0} collective-permute(a), source_target_pairs={{0,1},{1,0}}")
    assert found.groups == ((0, 1), (1, 0))
    assert found.sent == 32
    text = "(f32[8]{0}, f32[8]{0}, u32[], u32[]) collective-permute-start(a), source_target_pairs={{0,1},{1,0}}"
    assert line(text) == [Collective("x", "collective-permute", 32, ((0, 1), (1, 0)))]


def test_what_only_waits_is_no_exchange():
    assert line("f32[8]{0} all-reduce-done(a)") == []


WHAT = {
    "all-reduce": lambda x: lax.psum(x, "model"),
    "all-gather": lambda x: lax.all_gather(x, "model", tiled=True),
    "reduce-scatter": lambda x: lax.psum_scatter(x, "model", tiled=True),
    "all-to-all": lambda x: lax.all_to_all(x, "model", 0, 0, tiled=True),
    "collective-permute": lambda x: lax.ppermute(x, "model", [(0, 1), (1, 2), (2, 3), (3, 0)]),
}


@pytest.mark.parametrize("kind", WHAT)
def test_each_kind_is_found_in_what_xla_compiles(kind, of_both):
    function = jax.shard_map(
        WHAT[kind], mesh=of_both, in_specs=P(("data", "model")), out_specs=P("data"), check_vma=False
    )
    (found,) = collectives(view(function, np.zeros(8 * 12, np.float32)).module("optimized"))
    assert found.kind == kind
    # a device has 12 numbers of its own
    assert found.bytes == 48 * (4 if kind == "all-gather" else 1)
    if kind == "collective-permute":
        assert set(found.groups) == {(0, 1), (1, 2), (2, 3), (3, 0), (4, 5), (5, 6), (6, 7), (7, 4)}
    else:
        assert found.along(of_both) == ("model",)


def play(values, adding):
    """Send each device's parts [devices, devices, part] around once, added up or put in place; return bytes sent."""
    devices = len(values)
    sent = np.zeros(devices)
    for step in range(devices - 1):
        # a device gives on what has just come to it: while adding, its own part starts the sum
        parts = [(here - step + (0 if adding else 1)) % devices for here in range(devices)]
        moving = [values[here, part].copy() for here, part in enumerate(parts)]
        for here, (part, value) in enumerate(zip(parts, moving, strict=True)):
            there = (here + 1) % devices
            values[there, part] = values[there, part] + value if adding else value
            sent[here] += value.nbytes
    return sent


@pytest.mark.parametrize("devices", [1, 2, 3, 8])
def test_a_ring_that_is_played_gives_the_sum_everywhere_for_these_bytes(devices):
    values = np.random.default_rng(0).standard_normal((devices, devices, 5))
    whole, size = values.sum(axis=0), values[0].nbytes
    scattered = play(values, adding=True)
    np.testing.assert_allclose(scattered, ring_bytes("reduce-scatter", size, devices))
    gathered = play(values, adding=False)
    np.testing.assert_allclose(gathered, ring_bytes("all-gather", size, devices))
    np.testing.assert_allclose(values, np.broadcast_to(whole, values.shape))
    np.testing.assert_allclose(scattered + gathered, ring_bytes("all-reduce", size, devices))


def test_there_is_no_other_kind():
    with pytest.raises(XlaError, match="no such collective"):
        ring_bytes("broadcast", 8, 2)


def test_exchanges_are_added_up_by_axis(of_both):
    rows = tuple(tuple(range(start, start + 4)) for start in (0, 4))
    everybody = (tuple(range(8)),)
    found = [Collective("a", "all-reduce", 10, rows), Collective("b", "all-gather", 5, rows),
             Collective("c", "all-reduce", 7, everybody), Collective("d", "all-reduce", 3, ((0, 1), (2, 3))),
             Collective("e", "all-reduce", 9, ((0,), (1,)))]  # fmt: skip
    assert by_axis(found, of_both) == {"data": 0, "model": 15, "data+model": 7, "other": 3}
