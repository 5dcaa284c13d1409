"""Networks that generate images, signals and fields."""

from __future__ import annotations

import math

import torch
from torch import nn

from tests.tools.compiler.architectures.architecture import Architecture, Input, image
from tests.tools.compiler.architectures.blocks import Add


def dcgan_generator() -> nn.Module:
    """Build DCGAN's generator: transposed convolutions from a vector to an image (Radford et al., ICLR 2016)."""
    layers: list[nn.Module] = [nn.ConvTranspose2d(16, 32, 4, 1, 0, bias=False), nn.BatchNorm2d(32), nn.ReLU()]
    layers += [nn.ConvTranspose2d(32, 16, 4, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    return nn.Sequential(*layers, nn.ConvTranspose2d(16, 3, 4, 2, 1, bias=False), nn.Tanh())


def dcgan_discriminator() -> nn.Module:
    """Build DCGAN's discriminator: strided convolutions with leaky ReLUs."""
    layers = (nn.Conv2d(3, 8, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(8, 16, 4, 2, 1), nn.BatchNorm2d(16))
    return nn.Sequential(*layers, nn.LeakyReLU(0.2), nn.Conv2d(16, 1, 8), nn.Flatten(), nn.Sigmoid())


def autoencoder() -> nn.Module:
    """Build a convolutional autoencoder: strides down, transposed convolutions with output padding up."""
    encoder = (nn.Conv2d(3, 8, 3, 2, 1), nn.ELU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ELU())
    up = nn.ConvTranspose2d(16, 8, 3, 2, 1, output_padding=1)
    return nn.Sequential(*encoder, up, nn.ELU(), nn.ConvTranspose2d(8, 3, 3, 2, 1, output_padding=1), nn.Sigmoid())


def super_resolution() -> nn.Module:
    """Build ESPCN: convolutions at low resolution, a pixel shuffle at the end (Shi et al., CVPR 2016)."""
    layers = (nn.Conv2d(1, 16, 5, padding=2), nn.Tanh(), nn.Conv2d(16, 8, 3, padding=1), nn.PReLU(8))
    return nn.Sequential(*layers, nn.Conv2d(8, 9, 3, padding=1), nn.PixelShuffle(3))


def style_transfer() -> nn.Module:
    """Build a style transfer network: reflection padding, instance normalisation, upsampling (Johnson et al. 2016)."""
    down = (nn.ReflectionPad2d(2), nn.Conv2d(3, 8, 5, 2), nn.InstanceNorm2d(8, affine=True), nn.ReLU())
    block = Add(nn.Sequential(nn.ReflectionPad2d(1), nn.Conv2d(8, 8, 3), nn.InstanceNorm2d(8, affine=True)))
    up = (nn.Upsample(scale_factor=2, mode="nearest"), nn.ReflectionPad2d(1), nn.Conv2d(8, 3, 3))
    return nn.Sequential(*down, block, *up, nn.Tanh())


class Diffusion(nn.Module):
    """A diffusion model's denoiser: group normalisation, sinusoidal time embedding (Ho et al., NeurIPS 2020)."""

    def __init__(self, channels: int = 16) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, channels, 3, padding=1), nn.Conv2d(channels, 3, 3, padding=1)
        self.time = nn.Sequential(nn.Linear(8, channels), nn.SiLU(), nn.Linear(channels, channels))
        self.norm, self.conv = nn.GroupNorm(4, channels), nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        """Map an image [N, 3, H, W] and time steps [N] to noise [N, 3, H, W]."""
        angles = t[:, None].float() * torch.exp(-math.log(1e4) * torch.arange(4, dtype=torch.float32) / 4)[None]
        time = self.time(torch.cat([angles.sin(), angles.cos()], dim=-1))[:, :, None, None]
        x = self.first(x)
        return self.last(x + self.conv(torch.nn.functional.silu(self.norm(x) + time)))


class NeRF(nn.Module):
    """A radiance field: positions and directions encoded by sines of growing frequency (Mildenhall et al. 2020)."""

    frequencies: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("frequencies", 2.0 ** torch.arange(4))
        self.trunk = nn.Sequential(nn.Linear(27, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
        self.density, self.colour = nn.Linear(32, 1), nn.Sequential(nn.Linear(59, 16), nn.ReLU(), nn.Linear(16, 3))

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        """Map [N, 3] to [N, 27]: x, and its sines and cosines."""
        angles = (x[..., None] * self.frequencies).flatten(-2)
        return torch.cat([x, angles.sin(), angles.cos()], -1)

    def forward(self, position: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
        """Return colour and density at each position, [N, 4]."""
        hidden = self.trunk(self.encode(position))
        direction = direction / direction.norm(dim=-1, keepdim=True)
        colour = self.colour(torch.cat([hidden, self.encode(direction)], -1)).sigmoid()
        return torch.cat([colour, nn.functional.softplus(self.density(hidden))], -1)


class KAN(nn.Module):
    """A layer whose edges are learned functions, here sums of radial bases (Liu et al. 2024)."""

    centres: torch.Tensor

    def __init__(self, inputs: int, outputs: int, bases: int = 5) -> None:
        super().__init__()
        self.register_buffer("centres", torch.linspace(-2, 2, bases))
        self.edges = nn.Parameter(torch.randn(inputs, outputs, bases) / inputs)
        self.base = nn.Linear(inputs, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map [N, inputs] to [N, outputs]."""
        bases = torch.exp(-((x.unsqueeze(-1) - self.centres) ** 2))
        return torch.einsum("nik,iok->no", bases, self.edges) + self.base(nn.functional.silu(x))


ARCHITECTURES = (
    Architecture("dcgan_generator", dcgan_generator, (Input(("batch", 16, 1, 1)),)),
    Architecture("dcgan_discriminator", dcgan_discriminator, image()),
    Architecture("autoencoder", autoencoder, image()),
    Architecture("super_resolution", super_resolution, image(1, 16)),
    Architecture("style_transfer", style_transfer, image()),
    Architecture("diffusion", Diffusion, (*image(3, 16), Input(("batch",), 100, "t"))),
    Architecture("nerf", NeRF, (Input(("batch", 3)), Input(("batch", 3), name="direction"))),
    Architecture("kan", lambda: nn.Sequential(KAN(4, 8), KAN(8, 3)), (Input(("batch", 4)),)),
)
