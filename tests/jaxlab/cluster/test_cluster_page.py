"""The cluster's README: its files parse, and set what JAX's cluster detection reads."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from jax._src.clusters import slurm_cluster

from mlhood.jaxlab.cluster import processes

PAGE = Path(processes.__file__).with_name("README.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def manifest():
    (text,) = blocks("yaml")
    return {resource["kind"]: resource for resource in yaml.safe_load_all(text)}


def test_volumes_and_arguments_are_consistent(manifest):
    pod = manifest["Job"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert [mount["name"] for mount in container["volumeMounts"]] == [volume["name"] for volume in pod["volumes"]]


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX scripts")
def test_the_scripts_parse():
    for text in blocks("sh"):
        subprocess.run(["bash", "-n"], input=text, text=True, check=True)


def test_slurms_variables_are_those_that_jax_reads():
    read = set(re.findall(r"'(SLURM_\w+)'", inspect.getsource(slurm_cluster)))
    needed = set(processes.CLUSTER_MANAGERS["Slurm"])
    assert needed <= read
    assert all(f"`{name}`" in PAGE for name in needed)
