"""The zoo: every architecture runs on any batch, gives finite numbers, and has the same weights in every run."""

import pytest
import torch

from tests.tools.compiler.architectures import ARCHITECTURES, architecture


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_an_element_of_a_batch_does_not_depend_on_the_others(name):
    entry = architecture(name)
    model = entry.model()
    axes = [spec.batch_axis for spec in entry.inputs]
    inputs = entry.samples(3)
    first = [x.narrow(axis, 0, 1) for x, axis in zip(inputs, axes, strict=True)]
    with torch.inference_mode():
        outputs, alone = (model(*arguments) for arguments in (inputs, first))
    pairs = zip(outputs, alone, strict=True) if isinstance(outputs, tuple) else [(outputs, alone)]
    for batch, single in pairs:
        assert batch.isfinite().all()
        (axis,) = [i for i, (n, m) in enumerate(zip(batch.shape, single.shape, strict=True)) if (n, m) == (3, 1)]
        torch.testing.assert_close(batch.narrow(axis, 0, 1), single, rtol=1e-4, atol=1e-5)


def test_weights_and_inputs_are_the_same_in_every_run():
    entry = architecture("lenet")
    first, same = (entry.model().state_dict()["conv1.weight"] for _ in range(2))
    assert torch.equal(first, same)
    first, same, other = (entry.samples(2, seed)[0] for seed in (1, 1, 2))
    assert torch.equal(first, same)
    assert not torch.equal(first, other)
