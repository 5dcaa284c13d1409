"""Networks that predict for each pixel or each box: segmentation, detection."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from tests.tools.compiler.architectures.architecture import Architecture, image
from tests.tools.compiler.architectures.blocks import conv


class UNet(nn.Module):
    """Two scales down and up again, with skip connections (Ronneberger et al., MICCAI 2015)."""

    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2, self.bottom = conv(3, 8), conv(8, 16), conv(16, 32)
        self.up2, self.up1 = nn.ConvTranspose2d(32, 16, 2, 2), nn.ConvTranspose2d(16, 8, 2, 2)
        self.merge2, self.merge1, self.last = conv(32, 16), conv(16, 8), nn.Conv2d(8, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map [N, 3, H, W] to two logits for each pixel, [N, 2, H, W]."""
        first = self.down1(x)
        second = self.down2(functional.max_pool2d(first, 2))
        y = self.bottom(functional.max_pool2d(second, 2))
        y = self.merge2(torch.cat([self.up2(y), second], 1))
        return self.last(self.merge1(torch.cat([self.up1(y), first], 1)))


class DeepLab(nn.Module):
    """Dilated convolutions side by side, and the image's mean (ASPP: Chen et al. 2017)."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(conv(3, 8, 3, 2), conv(8, 16, 3, 2))
        self.rates = nn.ModuleList([conv(16, 8, 1), *(conv(16, 8, 3, dilation=rate) for rate in (2, 4, 6))])
        self.pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(16, 8, 1), nn.ReLU())
        self.last = nn.Sequential(conv(40, 8, 1), nn.Conv2d(8, 4, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map [N, 3, H, W] to four logits for each pixel, [N, 4, H, W]."""
        y = self.features(x)
        mean = functional.interpolate(self.pool(y), size=y.shape[-2:], mode="bilinear", align_corners=False)
        y = self.last(torch.cat([*(rate(y) for rate in self.rates), mean], 1))
        return functional.interpolate(y, size=x.shape[-2:], mode="bilinear", align_corners=True)


class YOLO(nn.Module):
    """A YOLO-like head: boxes of a grid, decoded (Redmon and Farhadi 2018), after SPPF and a focus stem."""

    grid: torch.Tensor

    def __init__(self, side: int = 8, anchors: int = 3, classes: int = 2) -> None:
        super().__init__()
        self.anchors, self.side = anchors, side
        self.stem, self.down = conv(12, 16, act=nn.SiLU), conv(16, 32, 3, 2, act=nn.SiLU)
        self.pool = nn.MaxPool2d(5, 1, 2)
        self.head = nn.Conv2d(96, anchors * (5 + classes), 1)
        axes = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
        self.register_buffer("grid", torch.stack(axes[::-1], -1).float())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map [N, 3, 32, 32] to boxes, [N, anchors * side * side, 5 + classes]."""
        parts = [x[..., ::2, ::2], x[..., 1::2, ::2], x[..., ::2, 1::2], x[..., 1::2, 1::2]]
        y = self.down(self.stem(torch.cat(parts, 1)))
        once = self.pool(y)
        y = self.head(torch.cat([y, once, self.pool(once)], 1))
        y = y.view(y.shape[0], self.anchors, -1, self.side, self.side).permute(0, 1, 3, 4, 2).contiguous().sigmoid()
        centre, size, rest = y.split((2, 2, y.shape[-1] - 4), -1)
        y = torch.cat(((centre * 2 - 0.5 + self.grid) * 4, (size * 2) ** 2 * 8, rest), -1)
        return y.view(y.shape[0], -1, y.shape[-1])


ARCHITECTURES = (
    Architecture("unet", UNet, image()),
    Architecture("deeplab", DeepLab, image()),
    Architecture("yolo", YOLO, image()),
)
