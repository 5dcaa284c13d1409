"""MobileNetV2: parameters and multiply-accumulates from the literature, and torchvision's names."""

import torch

from mlhood.models import MobileNetV2, mobilenet_v2


def test_parameter_count_and_names():
    state = mobilenet_v2().state_dict()
    assert sum(p.numel() for p in mobilenet_v2().parameters()) == 3_504_872
    # of torchvision.models.mobilenet_v2
    assert state["features.0.0.weight"].shape == (32, 3, 3, 3)
    assert state["features.1.conv.1.weight"].shape == (16, 32, 1, 1)
    assert state["features.2.conv.1.0.weight"].shape == (96, 1, 3, 3)
    assert state["features.17.conv.3.running_var"].shape == (320,)
    assert state["features.18.0.weight"].shape == (1280, 320, 1, 1)
    assert state["classifier.1.weight"].shape == (1000, 1280)
    assert len(state) == 314


def test_channels_are_rounded_to_multiples_of_8_but_not_far_down():
    state = MobileNetV2(10, width=0.35).state_dict()
    assert state["features.0.0.weight"].shape[0] == 16  # 11.2 would lose more than a tenth
    assert state["features.17.conv.3.weight"].shape[0] == 112
    assert state["classifier.1.weight"].shape == (10, 1280)  # the last layer does not become narrower


def test_the_seed_determines_the_weights_and_torch_keeps_its_state():
    before = torch.random.get_rng_state()
    name = "features.0.0.weight"
    first, again, other = (mobilenet_v2(seed, classes=3, width=0.25).state_dict()[name] for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_values_keep_their_magnitude_through_the_network():
    model, x = mobilenet_v2(classes=10, width=0.25).eval(), torch.randn(2, 3, 64, 64)
    with torch.inference_mode():
        features = model.features(x)
        logits = model(x)
    assert logits.shape == (2, 10)
    assert 0.01 < features.std() < 100
    assert (logits[0] - logits[1]).abs().max() > 0.001
