"""The cluster's README: its files parse, and set what JAX's cluster detection reads."""

import inspect
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from jax._src.clusters import k8s_cluster, slurm_cluster

from mlhood.jaxlab.cluster import processes, program

PAGE = Path(processes.__file__).with_name("README.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def manifest():
    (text,) = blocks("yaml")
    return {resource["kind"]: resource for resource in yaml.safe_load_all(text)}


def test_the_job_has_what_jax_reads_from_the_api_server(manifest):
    job, service = manifest["Job"], manifest["Service"]
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    assert (job["apiVersion"], spec["completionMode"]) == ("batch/v1", "Indexed")
    assert spec["parallelism"] == spec["completions"] > 1
    assert pod["subdomain"] == service["metadata"]["name"]
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["selector"] == {"job-name": job["metadata"]["name"]}
    assert job["metadata"]["labels"]
    text = PAGE.replace("\n", " ")
    assert f"`{job['metadata']['name']}-0.{pod['subdomain']}`" in text
    assert f"port {k8s_cluster.K8sCluster._coordinator_port} " in text
    source = inspect.getsource(k8s_cluster)
    assert all(name in source for name in ("JOB_COMPLETION_INDEX", "job-name", "subdomain", "spec.parallelism"))


def test_the_service_account_may_read_what_jax_requests(manifest):
    account = manifest["ServiceAccount"]["metadata"]["name"]
    assert manifest["Job"]["spec"]["template"]["spec"]["serviceAccountName"] == account
    assert [subject["name"] for subject in manifest["RoleBinding"]["subjects"]] == [account]
    assert manifest["RoleBinding"]["roleRef"]["name"] == manifest["Role"]["metadata"]["name"]
    verbs = {resource: rule["verbs"] for rule in manifest["Role"]["rules"] for resource in rule["resources"]}
    assert "list" in verbs["pods"]
    assert "get" in verbs["jobs"]
    assert "list" in verbs["services"]


def test_volumes_and_arguments_are_consistent(manifest):
    pod = manifest["Job"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert [mount["name"] for mount in container["volumeMounts"]] == [volume["name"] for volume in pod["volumes"]]
    assert container["command"][-1] == program.__name__
    options = program._options(container["args"])
    assert str(options.checkpoints).startswith(container["volumeMounts"][0]["mountPath"])


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX scripts")
def test_the_scripts_parse():
    for text in blocks("sh"):
        subprocess.run(["bash", "-n"], input=text, text=True, check=True)


def test_slurms_variables_are_those_that_jax_reads():
    read = set(re.findall(r"'(SLURM_\w+)'", inspect.getsource(slurm_cluster)))
    needed = set(processes.CLUSTER_MANAGERS["Slurm"])
    assert needed <= read
    assert all(f"`{name}`" in PAGE for name in needed)


def test_the_programs_options_exist():
    lines = "".join(blocks("sh")).replace("\\\n", " ").splitlines()
    commands = [line.partition(program.__name__)[2] for line in lines if program.__name__ in line]
    assert len(commands) == 4
    for arguments in commands:
        assert program._options(shlex.split(arguments)).steps
