"""Apache Spark: TorchDistributor starts an empty function in each task of a barrier stage.

spark-submit ... .../spark_empty.py --processes N

Nothing of the package `training` is imported or shipped: what this takes is the stack's bare start.
"""

from __future__ import annotations

import argparse
from contextlib import suppress

from py4j.protocol import Py4JError
from pyspark import __version__
from pyspark.ml.torch.distributor import TorchDistributor
from pyspark.sql import SparkSession


def nothing() -> None:
    """What each rank runs."""


def main() -> None:
    """Submit it to the standalone cluster, and wait for its end."""
    parser = argparse.ArgumentParser(description="An empty function on Spark's standalone cluster.")
    parser.add_argument("--processes", type=int, required=True, help="number of ranks")
    processes = parser.parse_args().processes
    spark = SparkSession.builder.getOrCreate()
    jvm = spark.sparkContext._jvm
    try:
        # As in training: each task then gets a GPU, even one that is only declared.
        use_gpu = int(spark.conf.get("spark.task.resource.gpu.amount", None) or 0) > 0
        TorchDistributor(num_processes=processes, local_mode=False, use_gpu=use_gpu).run(nothing)
    finally:
        spark.stop()
    # As after training: Spark 3.5.1 leaves the driver's JVM running, which is spark-submit (SPARK-49479).
    if jvm is not None and int(__version__.partition(".")[0]) < 4:
        with suppress(Py4JError):  # it ends before it can answer
            jvm.java.lang.System.exit(0)


if __name__ == "__main__":
    main()
