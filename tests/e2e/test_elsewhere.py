"""Work that somebody submits to a stack by hand, from another node than the project's own runs."""

from __future__ import annotations

import ast
import base64

import pytest

from tests.e2e.testbeds import Testbed

pytestmark = [pytest.mark.wide, pytest.mark.usefixtures("provisioned")]

#: A step of DistributedDataParallel on two ranks: their gradients are 1 and 2, so the mean is 1.5.
TRAINING = """
import os, socket
from pyspark.ml.torch.distributor import TorchDistributor
from pyspark.sql import SparkSession


def step():
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    module = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1, bias=False))
    module(torch.full((1, 1), dist.get_rank() + 1.0)).sum().backward()
    mine = (socket.gethostname(), os.getuid(), module.module.weight.grad.item())
    ranks = [None] * dist.get_world_size()
    dist.all_gather_object(ranks, mine)
    dist.destroy_process_group()
    return ranks


spark = SparkSession.builder.getOrCreate()
ranks = TorchDistributor(num_processes=2, local_mode=False, use_gpu=False).run(step)
print("SEEN", (socket.gethostname(), sorted(ranks)))
spark.stop()
"""

#: As docs/spark.md says ("A program of your own"), with small executors.
SUBMIT = """
set -eu
program=$(mktemp --suffix=.py)
trap 'rm -f "$program"' EXIT
echo {code} | base64 --decode > "$program"
chmod 644 "$program"
home=$(ls -d /opt/trainbed/env/current/lib/python3.*/site-packages/pyspark)
cd /tmp
runuser -u trainbed -- env SPARK_HOME="$home" SPARK_CONF_DIR=/etc/trainbed/spark "$home/bin/spark-submit" \\
  --conf spark.ui.enabled=false --conf spark.driver.host={address} \\
  --conf spark.executor.cores=1 --conf spark.executor.memory=1g --conf spark.cores.max=2 "$program"
"""


def test_a_training_submitted_to_spark_from_a_worker(testbed: Testbed) -> None:
    code = base64.b64encode(TRAINING.encode()).decode()
    address = testbed.connections.groups["cluster"]["worker2"]["cluster_address"]
    output = testbed.node("worker2", SUBMIT.format(code=code, address=address)).output
    (seen,) = [line for line in output.splitlines() if line.startswith("SEEN ")]
    driver, ranks = ast.literal_eval(seen.removeprefix("SEEN "))
    uid = int(testbed.node("worker2", "id --user trainbed").output)
    assert uid != 0
    assert driver == "worker2"
    assert ranks == [("worker1", uid, 1.5), ("worker2", uid, 1.5)]
