"""What the kernels' tests share."""

import pytest
import torch

from mlhood.kernels.codegen.target import available


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(params=available(), ids=lambda target: target.name)
def target(request):
    """Every kind of vector that this machine has."""
    return request.param
