"""Spark's master and workers."""

from __future__ import annotations

import ast
import functools
import json
import shlex
from typing import Any

import pytest
from testinfra.backend.base import CommandResult
from testinfra.host import Host

from tests.nodes import cluster
from tests.nodes.facts import listening, usable_cores

pytestmark = pytest.mark.stack("spark")


def gpus(name: str) -> list[str]:
    """Addresses of the GPUs that a worker should offer: its driver's, or those that are only declared."""
    declared = int(cluster.variables(name)["worker_pseudo_gpus"])
    options = f" --pseudo {declared}" if declared else ""
    listed = json.loads(cluster.node(name).check_output(f"/opt/trainbed/list-gpus{options}"))
    if cluster.variables(name)["worker_device"] == "cuda":
        assert listed["trouble"] is None
    return [gpu["index"] for gpu in listed["gpus"] if not gpu["mig"]]


@pytest.mark.on("master")
@pytest.mark.parametrize(("moved", "usual"), [("spark_master_port", 7077), ("spark_master_webui_port", 7080)])
def test_sparks_master_listens_on_one_address_only(name: str, moved: str, usual: int) -> None:
    assert listening(name, cluster.port(moved, usual)) == [cluster.variables(name)["cluster_address"]]


@pytest.mark.on("workers")
@pytest.mark.parametrize(("moved", "usual"), [("spark_worker_port", 7078), ("spark_worker_webui_port", 7081)])
def test_sparks_worker_listens_on_one_address_only(name: str, moved: str, usual: int) -> None:
    assert listening(name, cluster.port(moved, usual)) == [cluster.variables(name)["cluster_address"]]


@pytest.mark.on("master")
def test_spark_counts_every_worker_with_its_cores_and_memory(name: str) -> None:
    alive = {worker["host"]: worker for worker in view(name)["workers"] if worker["state"] == "ALIVE"}
    expected = {facts["cluster_address"]: other for other, facts in cluster.groups()["workers"].items()}
    assert set(alive) == set(expected)
    # No worker offers more than another, so that each has room for one executor of a run.
    fewest = min(len(usable_cores(other)) for other in expected.values())
    wanted = cluster.variables(name).get("spark_worker_cores") or fewest
    for host, worker in alive.items():
        assert worker["cores"] == int(wanted)
        assert worker["memory"] >= 1024
        offered = worker["resources"].get("gpu", {"addresses": []})["addresses"]
        assert offered == gpus(expected[host])


def test_sparks_daemons_run_as_the_training_user(node: Host, name: str) -> None:
    users = node.check_output("ps -C java -o user:20=,args=").splitlines()
    daemons = [row.split()[0] for row in users if "org.apache.spark.deploy" in row]
    assert daemons
    assert set(daemons) == {cluster.variables(name)["trainbed_user"]}


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


#: A job of seconds gains nothing from the optimising compiler, which takes much of its start-up time.
QUICK_START = "-XX:TieredStopAtLevel=1"
#: Spark keeps retrying for a minute when refused; its message about the first attempt is enough.
UNTIL_REFUSED = """
said=$(mktemp)
"$@" 2> "$said" &
while kill -0 $! 2> /dev/null && ! grep --quiet "Failed to connect to master" "$said"; do sleep 0.5; done
kill $! 2> /dev/null
wait $!
status=$?
cat "$said" >&2
rm "$said"
exit $status
"""


def job(name: str, *settings: str) -> str:
    """The command that submits a small job from this node to the cluster, as the training user."""
    facts = cluster.variables(name)
    node = cluster.node(name)
    home = node.check_output("ls -d %s/lib/python3.*/site-packages/pyspark", facts["environment_path"])
    environment = {
        "SPARK_HOME": home,
        "SPARK_CONF_DIR": "/etc/trainbed/spark",
        "SPARK_LOCAL_IP": facts["cluster_address"],
        "JDK_JAVA_OPTIONS": QUICK_START,
    }
    command = ["runuser", "-u", facts["trainbed_user"], "--", "env"]
    command += [f"{key}={value}" for key, value in environment.items()]
    command += ["timeout", "600", f"{facts['environment_path']}/bin/python", "-c", PROGRAM]
    command += [f"spark.executor.extraJavaOptions={QUICK_START}", *settings]
    return shlex.join(command)


@functools.cache
def view(name: str) -> dict[str, Any]:
    """The state that Spark's master reports."""
    address = cluster.variables(name)["cluster_address"]
    page = f"http://{address}:{cluster.port('spark_master_webui_port', 7080)}/json/"
    return dict(json.loads(cluster.node(name).check_output(f"curl --silent --noproxy '*' {page}")))


@cluster.question("master")
def done_by_all_cores(name: str) -> CommandResult:
    """The outcome of a job that wants every core."""
    # Without the number of cores Spark does not know what to wait for, and one executor may take all tasks.
    cores = sum(worker["cores"] for worker in view(name)["workers"] if worker["state"] == "ALIVE")
    whole = (
        f"spark.cores.max={cores}",
        "spark.scheduler.minRegisteredResourcesRatio=1",
        "spark.scheduler.maxRegisteredResourcesWaitingTime=60s",
    )
    return cluster.node(name).run(job(name, *whole))


@cluster.question("master")
def done_without_the_secret(name: str) -> CommandResult:
    """The outcome of a job that does not know the cluster's secret."""
    command = job(name, "spark.authenticate.secret=wrong")
    return cluster.node(name).run(f"sh -c %s sh {command}", UNTIL_REFUSED)


@pytest.mark.on("master")
@cluster.asks(done_by_all_cores)
def test_spark_runs_tasks_on_every_worker_as_the_training_user(name: str) -> None:
    done = done_by_all_cores(name)
    assert done.rc == 0, done.stderr
    seen = ast.literal_eval(done.stdout.split("SEEN", 1)[1].strip())
    hosts = {ast.literal_eval(item)[0] for item in seen}
    assert hosts == set(cluster.groups()["workers"])
    assert {ast.literal_eval(item)[2] for item in seen} == {cluster.variables(name)["trainbed_uid"]}
    for item in seen:
        host, affinity, _ = ast.literal_eval(item)
        assert affinity == usable_cores(host)


@pytest.mark.on("master")
@cluster.asks(done_without_the_secret)
def test_spark_refuses_who_does_not_know_the_secret(name: str) -> None:
    done = done_without_the_secret(name)
    assert "Failed to connect to master" in done.stderr
    assert "SEEN" not in done.stdout
