"""ResNet against the published architecture: names, shapes and counts as in torchvision."""

import pytest
import torch

from mlhood.models import resnet18, resnet50

PUBLISHED = {
    "resnet18": (resnet18, [2, 2, 2, 2], 1, 11_689_512, 122),
    "resnet50": (resnet50, [3, 4, 6, 3], 4, 25_557_032, 320),
}

# Some entries of the published files.
PUBLISHED_SHAPES = {
    "resnet18": {
        "conv1.weight": (64, 3, 7, 7),
        "bn1.num_batches_tracked": (),
        "layer1.1.conv2.weight": (64, 64, 3, 3),
        "layer2.0.downsample.0.weight": (128, 64, 1, 1),
        "layer2.0.downsample.1.running_var": (128,),
        "layer4.1.bn2.bias": (512,),
        "fc.weight": (1000, 512),
    },
    "resnet50": {
        "layer1.0.downsample.0.weight": (256, 64, 1, 1),
        "layer1.0.conv1.weight": (64, 64, 1, 1),
        "layer3.0.conv2.weight": (256, 256, 3, 3),
        "layer4.2.conv3.weight": (2048, 512, 1, 1),
        "layer4.2.bn3.running_mean": (2048,),
        "fc.weight": (1000, 2048),
        "fc.bias": (1000,),
    },
}


def batch_norm(name, width):
    fields = ("weight", "bias", "running_mean", "running_var")
    return [(f"{name}.{field}", (width,)) for field in fields] + [(f"{name}.num_batches_tracked", ())]


def state(depths, expansion):
    """Table 1 of the paper as names and shapes in the order of the published files."""
    yield "conv1.weight", (64, 3, 7, 7)
    yield from batch_norm("bn1", 64)
    channels = 64
    for stage, depth in enumerate(depths, start=1):
        width = 32 * 2**stage
        for index in range(depth):
            block = f"layer{stage}.{index}"
            if expansion == 1:
                convolutions = [(width, channels, 3), (width, width, 3)]
            else:
                convolutions = [(width, channels, 1), (width, width, 3), (4 * width, width, 1)]
            for number, (filters, depth_in, size) in enumerate(convolutions, start=1):
                yield f"{block}.conv{number}.weight", (filters, depth_in, size, size)
                yield from batch_norm(f"{block}.bn{number}", filters)
            if index == 0 and channels != width * expansion:
                yield f"{block}.downsample.0.weight", (width * expansion, channels, 1, 1)
                yield from batch_norm(f"{block}.downsample.1", width * expansion)
            channels = width * expansion
    yield "fc.weight", (1000, channels)
    yield "fc.bias", (1000,)


@pytest.mark.parametrize("name", PUBLISHED)
def test_state_dict_is_torchvisions(name):
    build, depths, expansion, count, entries = PUBLISHED[name]
    with torch.device("meta"):
        model = build()
    ours = [(key, tuple(value.shape)) for key, value in model.state_dict().items()]
    assert ours == list(state(depths, expansion))
    assert len(ours) == entries
    assert dict(ours).items() >= PUBLISHED_SHAPES[name].items()
    assert sum(parameter.numel() for parameter in model.parameters()) == count


@pytest.mark.parametrize("name", PUBLISHED)
def test_strides_and_paddings_are_torchvisions(name):
    build, _, expansion, *_ = PUBLISHED[name]
    with torch.device("meta"):
        model = build()
    strided = [key for key, module in model.named_modules() if getattr(module, "stride", 1) in ((2, 2), 2)]
    main = "conv1" if expansion == 1 else "conv2"
    blocks = [f"layer{stage}.0.{part}" for stage in (2, 3, 4) for part in (main, "downsample.0")]
    assert strided == ["conv1", "maxpool", *blocks]
    assert all(
        module.padding == (module.kernel_size[0] // 2,) * 2 and module.bias is None
        for module in model.modules()
        if isinstance(module, torch.nn.Conv2d)
    )


def test_initialisation_is_torchvisions():
    torch.manual_seed(0)
    model = resnet18()
    weight = model.layer2[0].conv1.weight
    fan_out = 128 * 3 * 3
    assert weight.std().item() == pytest.approx((2 / fan_out) ** 0.5, rel=0.02)
    assert all(
        (module.weight == 1).all() and (module.bias == 0).all()
        for module in model.modules()
        if isinstance(module, torch.nn.BatchNorm2d)
    )


def test_resnet_maps_images_to_logits():
    assert resnet18(classes=7).eval()(torch.zeros(2, 3, 64, 64)).shape == (2, 7)
