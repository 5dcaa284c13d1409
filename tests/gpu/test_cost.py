"""What a roofline predicts for kernels on GPUs."""

import pytest

from mlhood.gpu import cost

# TFLOP/s as the sources state them
STATED = {"T4": 8.1, "A100": 19.5, "H100": 66.9, "RTX A6000": 38.7}


@pytest.mark.parametrize(("name", "teraflops"), STATED.items())
def test_peaks_are_those_of_the_data_sheets(name, teraflops):
    assert cost.GPUS[name].peak / 1e12 == pytest.approx(teraflops, rel=0.01)


@pytest.mark.parametrize("gpu", cost.GPUS.values(), ids=lambda gpu: gpu.name)
def test_each_rung_is_faster_than_the_one_before(gpu):
    rates = [cost.predicted(rung, 4096, gpu)[0] for rung in cost.TILES]
    assert rates == sorted(rates)
    assert rates[-1] <= gpu.peak


def test_what_limits_a_rung():
    assert cost.predicted("naive", 4096, cost.GPUS["H100"])[1] == "global memory"
    assert cost.predicted("tiled", 4096, cost.GPUS["H100"])[1] == "shared memory"
    work = cost.Work(flops=2e12, bytes=1.0, passes=1.0)
    seconds = work.seconds(cost.GPUS["T4"])
    assert max(seconds, key=lambda part: seconds[part]) == "arithmetic"
    assert seconds["arithmetic"] == pytest.approx(2e12 / cost.GPUS["T4"].peak)


@pytest.mark.parametrize(("rung", "bytes_per_product"), [("naive", 33), ("coalesced", 5), ("tiled", 0.25)])
def test_other_tiles(rung, bytes_per_product):
    n = 4096
    assert cost.work(rung, n, 32).bytes == pytest.approx(bytes_per_product * n**3, rel=0.01)
