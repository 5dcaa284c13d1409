"""Loading torch's weights into the ResNet in JAX."""

import jax

from mlhood.jaxlab.operators.resnet import from_torch
from mlhood.models import resnet18


def test_a_state_dict_is_accepted_and_has_all_parameters():
    model = resnet18(classes=10)
    params = from_torch(model.state_dict())
    total = sum(leaf.size for leaf in jax.tree.leaves(params))
    buffers = sum(value.numel() for name, value in model.named_buffers() if "running" in name)
    assert total == sum(value.numel() for value in model.parameters()) + buffers
    assert [len(params[f"layer{i}"]) for i in range(1, 5)] == [2, 2, 2, 2]
