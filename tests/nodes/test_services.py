"""Store, engine, registry, image and Spark."""

from __future__ import annotations

import ast
import json
import os
from typing import Any

import pytest
from testinfra.backend.base import CommandResult
from testinfra.host import Host

from tests.nodes import cluster


def listening(node: Host, port: int) -> list[str]:
    """Addresses that something listens on at this TCP port."""
    rows = node.check_output("ss --listening --tcp --numeric --no-header").splitlines()
    return [
        local.rsplit(":", 1)[0].strip("[]").removeprefix("::ffff:")
        for row in rows
        if (local := row.split()[3]).rsplit(":", 1)[1] == str(port)
    ]


def gpus(node: Host, name: str) -> list[str]:
    """Addresses of the GPUs that a worker should offer: its driver's, or those that are only declared."""
    declared = int(cluster.variables(name)["worker_pseudo_gpus"])
    options = f" --pseudo {declared}" if declared else ""
    listed = json.loads(node.check_output(f"/opt/trainbed/list-gpus{options}"))
    assert listed["trouble"] is None
    return [gpu["index"] for gpu in listed["gpus"] if not gpu["mig"]]


@pytest.mark.on("master")
@pytest.mark.parametrize("service", ["nginx", "squid", "docker", "docker-registry"])
def test_the_masters_services_run_and_come_back(node: Host, service: str) -> None:
    assert node.service(service).is_running
    assert node.service(service).is_enabled


@pytest.mark.on("master")
@pytest.mark.usefixtures("spark")
def test_sparks_master_runs_and_comes_back(node: Host) -> None:
    assert node.service("spark-master").is_running
    assert node.service("spark-master").is_enabled


@pytest.mark.on("workers")
@pytest.mark.usefixtures("spark")
def test_sparks_worker_runs_and_comes_back(node: Host) -> None:
    assert node.service("spark-worker").is_running
    assert node.service("spark-worker").is_enabled


@pytest.mark.on("workers")
def test_a_workers_engine_runs_and_comes_back(node: Host) -> None:
    assert node.service("docker").is_running
    assert node.service("docker").is_enabled


@pytest.mark.on("master")
@pytest.mark.parametrize(
    ("moved", "usual"), [("registry_port", 5000), ("artifacts_apt_port", 3142), ("artifacts_port", 8070)]
)
def test_the_master_listens_on_one_address_only(node: Host, name: str, moved: str, usual: int) -> None:
    assert listening(node, cluster.port(moved, usual)) == [cluster.variables(name)["cluster_address"]]


@pytest.mark.on("master")
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(("moved", "usual"), [("spark_master_port", 7077), ("spark_master_webui_port", 7080)])
def test_sparks_master_listens_on_one_address_only(node: Host, name: str, moved: str, usual: int) -> None:
    assert listening(node, cluster.port(moved, usual)) == [cluster.variables(name)["cluster_address"]]


@pytest.mark.on("workers")
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(("moved", "usual"), [("spark_worker_port", 7078), ("spark_worker_webui_port", 7081)])
def test_sparks_worker_listens_on_one_address_only(node: Host, name: str, moved: str, usual: int) -> None:
    assert listening(node, cluster.port(moved, usual)) == [cluster.variables(name)["cluster_address"]]


@pytest.mark.usefixtures("testbed")
def test_leaves_the_ports_of_others_alone(node: Host) -> None:
    if "determined" in cluster.stacks():
        pytest.skip("Determined is installed, which is whom this port is left to")
    assert listening(node, 8080) == []


def test_containers_stay_within_the_nodes_cgroup(node: Host) -> None:
    assert node.check_output("docker info --format '{{.CgroupDriver}}'") == "systemd"


@pytest.mark.on("workers")
@pytest.mark.usefixtures("ddp")
def test_has_the_image_by_the_digest_that_all_workers_have(node: Host) -> None:
    image = node.check_output("cat /etc/trainbed/image")
    assert "@sha256:" in image
    others = {
        cluster.node(other).check_output("cat /etc/trainbed/image") for other in cluster.groups()["workers"]
    }
    assert others == {image}
    assert node.check_output("docker image inspect --format '{{.Id}}' %s", image).startswith("sha256:")


@pytest.mark.on("workers")
@pytest.mark.usefixtures("ddp")
def test_the_image_holds_no_training_code_and_has_the_training_user(node: Host, name: str) -> None:
    image = node.check_output("cat /etc/trainbed/image")
    found = node.check_output(
        "docker run --rm %s sh -c 'id -u; find / -xdev -path \"*training/loop.py\" 2> /dev/null; true'",
        image,
    )
    assert found.split() == [str(cluster.variables(name)["trainbed_uid"])]


@pytest.mark.on("master")
@pytest.mark.usefixtures("spark")
def test_spark_counts_every_worker_with_its_cores_and_memory(node: Host, name: str) -> None:
    address = cluster.variables(name)["cluster_address"]
    view = spark_view(node, address)
    alive = {worker["host"]: worker for worker in view["workers"] if worker["state"] == "ALIVE"}
    expected = {facts["cluster_address"]: other for other, facts in cluster.groups()["workers"].items()}
    assert set(alive) == set(expected)
    for host, worker in alive.items():
        usable = cluster.node(expected[host]).check_output(
            "python3 -c 'import os; print(len(os.sched_getaffinity(0)))'"
        )
        assert worker["cores"] == int(cluster.variables(name).get("spark_worker_cores") or usable)
        assert worker["memory"] >= 1024
        offered = worker["resources"].get("gpu", {"addresses": []})["addresses"]
        assert offered == gpus(cluster.node(expected[host]), expected[host])


@pytest.mark.usefixtures("spark")
def test_sparks_daemons_run_as_the_training_user(node: Host, name: str) -> None:
    users = node.check_output("ps -C java -o user:20=,args=").splitlines()
    daemons = [row.split()[0] for row in users if "org.apache.spark.deploy" in row]
    assert daemons
    assert set(daemons) == {cluster.variables(name)["trainbed_user"]}


@pytest.mark.usefixtures("spark")
def test_sparks_secret_is_kept(node: Host, name: str) -> None:
    configuration = node.file("/etc/trainbed/spark/spark-defaults.conf")
    assert configuration.mode == 0o640
    assert (configuration.user, configuration.group) == ("root", cluster.variables(name)["trainbed_user"])
    secret = next(
        line.split()[1]
        for line in configuration.content_string.splitlines()
        if line.startswith("spark.authenticate.secret")
    )
    assert len(secret) >= 40
    assert secret not in node.check_output("ps -e -o args")


PROGRAM = """
import os, socket, sys
from pyspark.sql import SparkSession
builder = SparkSession.builder.config("spark.ui.enabled", "false")
for setting in sys.argv[1:]:
    builder = builder.config(*setting.split("=", 1))
context = builder.getOrCreate().sparkContext
see = lambda _: (socket.gethostname(), sorted(os.sched_getaffinity(0)), os.getuid())
slots = int(context.getConf().get("spark.cores.max"))
seen = context.parallelize(range(slots), slots).map(see)
print("SEEN", sorted(set(map(str, seen.collect()))))
"""


def spark_job(node: Host, name: str, *settings: str, seconds: int = 150) -> CommandResult:
    """Run a small job from this node against the cluster, as the training user."""
    facts = cluster.variables(name)
    home = node.check_output("ls -d %s/lib/python3.*/site-packages/pyspark", facts["environment_path"])
    return node.run(
        "runuser -u %s -- env SPARK_HOME=%s SPARK_CONF_DIR=/etc/trainbed/spark SPARK_LOCAL_IP=%s "
        f"timeout {seconds} %s/bin/python -c %s " + " ".join(settings),
        facts["trainbed_user"],
        home,
        facts["cluster_address"],
        facts["environment_path"],
        PROGRAM,
    )


def spark_view(node: Host, address: str) -> dict[str, Any]:
    """What Spark's master says of itself."""
    page = f"http://{address}:{cluster.port('spark_master_webui_port', 7080)}/json/"
    view: dict[str, Any] = json.loads(node.check_output(f"curl --silent --noproxy '*' {page}"))
    return view


@pytest.mark.on("master")
@pytest.mark.usefixtures("spark")
def test_spark_runs_tasks_on_every_worker_as_the_training_user(node: Host, name: str) -> None:
    view = spark_view(node, cluster.variables(name)["cluster_address"])
    # Without the number of cores Spark does not know what to wait for, and one executor may take all tasks.
    cores = sum(worker["cores"] for worker in view["workers"] if worker["state"] == "ALIVE")
    whole = (
        f"spark.cores.max={cores}",
        "spark.scheduler.minRegisteredResourcesRatio=1",
        "spark.scheduler.maxRegisteredResourcesWaitingTime=60s",
    )
    done = spark_job(node, name, *whole)
    assert done.rc == 0, done.stderr
    seen = ast.literal_eval(done.stdout.split("SEEN", 1)[1].strip())
    hosts = {ast.literal_eval(item)[0] for item in seen}
    assert hosts == set(cluster.groups()["workers"])
    assert {ast.literal_eval(item)[2] for item in seen} == {cluster.variables(name)["trainbed_uid"]}
    for item in seen:
        host, affinity, _ = ast.literal_eval(item)
        assert affinity == usable_cores(cluster.node(host))


@pytest.mark.on("master")
@pytest.mark.usefixtures("spark")
def test_spark_refuses_who_does_not_know_the_secret(node: Host, name: str) -> None:
    # Spark would go on trying for a minute; what it says of the first try is enough.
    done = spark_job(node, name, "spark.authenticate.secret=wrong", seconds=25)
    assert "Failed to connect to master" in done.stderr
    assert "SEEN" not in done.stdout


def usable_cores(node: Host) -> list[int]:
    """Cores that a login on this node may use."""
    return list(
        ast.literal_eval(node.check_output("python3 -c 'import os; print(sorted(os.sched_getaffinity(0)))'"))
    )


@pytest.mark.on("workers")
@pytest.mark.usefixtures("ddp")
def test_containers_and_units_use_the_nodes_cores_and_no_other(node: Host) -> None:
    program = "import os; print(sorted(os.sched_getaffinity(0)))"
    image = node.check_output("cat /etc/trainbed/image")
    container = node.check_output("docker run --rm --network host %s python3 -c %s", image, program)
    unit = node.check_output("systemd-run --quiet --wait --pipe --collect /usr/bin/python3 -c %s", program)
    assert ast.literal_eval(container) == ast.literal_eval(unit) == usable_cores(node)


@pytest.mark.on("workers")
@pytest.mark.usefixtures("testbed")
def test_a_testbeds_worker_is_pinned_to_the_core_that_its_inventory_says(node: Host, name: str) -> None:
    assert usable_cores(node) == [int(cluster.variables(name)["testbed_cpus"])]


def test_shared_storage_is_one_directory(node: Host, name: str) -> None:
    facts = cluster.variables(name)
    mark = f"{name}-{os.getpid()}"
    path = f"{facts['shared_storage_path']}/runs/.verify-{mark}"
    user = facts["trainbed_user"]
    node.check_output("runuser -u %s -- sh -c %s", user, f"echo {mark} > {path}")
    try:
        for other in cluster.groups()["cluster"]:
            assert cluster.node(other).check_output("runuser -u %s -- cat %s", user, path) == mark
    finally:
        node.check_output("rm %s", path)


@pytest.mark.on("workers")
@pytest.mark.usefixtures("testbed")
def test_a_workers_only_way_out_is_the_master(node: Host, name: str) -> None:
    if name == cluster.master():
        pytest.skip("this worker is the master too")
    mirror = node.check_output("apt-get indextargets --format '$(REPO_URI)' | head -n 1")
    proxy = node.check_output("apt-config shell p Acquire::http::Proxy").removeprefix("p=").strip("'")
    command = f"curl --silent --output /dev/null --max-time 10 --proxy '%s' {mirror}"
    assert node.run(command, proxy).rc == 0
    assert node.run(command, "").rc != 0
