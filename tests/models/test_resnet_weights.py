"""Pretrained weights: a round trip through a file, and an error for each kind of failure."""

from urllib.error import URLError

import pytest
import torch

from mlhood.errors import ModelError
from mlhood.models import resnet18


def test_a_file_of_weights_loads(tmp_path):
    source = resnet18()
    torch.save(source.state_dict(), tmp_path / "weights.pth")
    loaded = resnet18(tmp_path / "weights.pth")
    assert all(torch.equal(a, b) for a, b in zip(source.parameters(), loaded.parameters(), strict=True))


def test_published_weights_are_downloaded_with_torch_hub(monkeypatch):
    source = resnet18()
    urls = []

    def fetch(url, **_):
        urls.append(url)
        return source.state_dict()

    monkeypatch.setattr(torch.hub, "load_state_dict_from_url", fetch)
    loaded = resnet18("imagenet")
    assert torch.equal(loaded.fc.weight, source.fc.weight)
    assert urls[0].endswith("/resnet18-f37072fd.pth")


@pytest.mark.parametrize("error", [URLError("no network"), RuntimeError("invalid hash value"), TimeoutError()])
def test_a_failed_download_raises(monkeypatch, error):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(torch.hub, "load_state_dict_from_url", fail)
    with pytest.raises(ModelError, match="cannot be downloaded") as caught:
        resnet18("imagenet")
    assert "resnet18-f37072fd.pth" in caught.value.parts["where"]
    assert "network" in caught.value.parts["what to do"]


def test_weights_of_another_shape_raise(tmp_path):
    torch.save(resnet18(classes=3).state_dict(), tmp_path / "weights.pth")
    with pytest.raises(ModelError, match="do not match") as caught:
        resnet18(tmp_path / "weights.pth")
    assert "fc.weight" in caught.value.parts["got"]


def test_a_file_without_a_state_dict_raises(tmp_path):
    (tmp_path / "text.pth").write_text("not weights")
    torch.save([1, 2], tmp_path / "list.pth")
    with pytest.raises(ModelError, match="cannot be read"):
        resnet18(tmp_path / "text.pth")
    with pytest.raises(ModelError, match="do not match"):
        resnet18(tmp_path / "list.pth")
    with pytest.raises(ModelError, match="no such weights file"):
        resnet18("nowhere.pth")


class Malicious:
    def __reduce__(self):
        return (exec, ("raise SystemExit('ran')",))


def test_a_malicious_pickle_is_not_executed(tmp_path):
    torch.save({"fc.weight": Malicious()}, tmp_path / "weights.pth")
    with pytest.raises(ModelError, match="cannot be read"):
        resnet18(tmp_path / "weights.pth")
