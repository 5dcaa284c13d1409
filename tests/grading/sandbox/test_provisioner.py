"""Any Jupyter program can start a kernel in a sandbox, by a kernelspec that names our provisioner."""

from __future__ import annotations

import json
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from jupyter_client.manager import KernelManager
from jupyter_client.provisioning.factory import KernelProvisionerFactory

from tests.waiting import PATIENCE

NAME = "mlhood-bubblewrap"
GROUP = "jupyter_client.kernel_provisioners"
ROOT = Path(__file__).parents[3]


def entry_point() -> EntryPoint:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return EntryPoint(NAME, project["entry-points"][GROUP][NAME], GROUP)


@pytest.fixture
def manager(bubblewrap, monkeypatch, tmp_path):
    spec = {
        "argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": "Python in a sandbox",
        "language": "python",
        "metadata": {"kernel_provisioner": {"provisioner_name": NAME, "config": {"memory": 900}}},
    }
    folder = tmp_path / "kernels" / "sandboxed"
    folder.mkdir(parents=True)
    (folder / "kernel.json").write_text(json.dumps(spec))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    monkeypatch.setitem(KernelProvisionerFactory.instance().provisioners, NAME, entry_point())
    manager = KernelManager(kernel_name="sandboxed")
    manager.start_kernel()
    yield manager
    manager.shutdown_kernel(now=True)
    manager.context.destroy(linger=0)


def output(client, source: str) -> str:
    texts = []

    def collect(message):
        texts.append(message["content"].get("text") or message["content"].get("ename") or "")

    client.execute_interactive(source, timeout=PATIENCE, output_hook=collect)
    return "".join(texts).strip()


def test_a_kernelspec_starts_signals_and_ends_a_sandbox(manager):
    client = manager.client()
    client.start_channels()
    client.wait_for_ready(timeout=PATIENCE)
    try:
        assert manager.provisioner.sandbox.limits.memory == 900 << 20
        assert output(client, "import os; print(os.getuid(), os.path.exists('/srv'))") == "65534 False"
        endless = "import time\nprint('on', flush=True)\nwhile True: time.sleep(0.01)"
        client.execute(endless, stop_on_error=False)  # otherwise the next request may still be aborted
        while client.get_iopub_msg(timeout=PATIENCE)["msg_type"] != "stream":  # before, there is nothing to interrupt
            pass
        manager.interrupt_kernel()
        assert client.get_shell_msg(timeout=PATIENCE)["content"]["ename"] == "KeyboardInterrupt"
        client.execute("x = 6 * 7")
        assert client.get_shell_msg(timeout=PATIENCE)["content"]["status"] == "ok"
        outside = manager.provisioner.sandbox.folder.parent
    finally:
        client.stop_channels()
    assert outside.exists()
    manager.shutdown_kernel(now=True)
    assert not manager.is_alive()
    assert not outside.exists()
