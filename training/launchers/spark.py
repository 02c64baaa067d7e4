"""Apache Spark: TorchDistributor starts one rank in each task of a barrier stage.

spark-submit ... --py-files training.zip .../spark.py --spec FILE --data DIR --out DIR --master-ui URL

`training.zip` holds the package `training` at its top level.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
import urllib.request
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from py4j.java_gateway import JVMView
from py4j.protocol import Py4JError
from pyspark import SparkContext, __version__
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from training.errors import DataError
from training.rank import arguments
from training.spec import RunSpec, SpecError, read_spec
from training.util.files import write_json

POLL_EVERY = 0.1  # s
PATIENCE = 120.0  # s that the driver has to register
QUEUE_LIMIT = 600.0  # s that an application waits for executors
ROOM_LIMIT = 30.0  # s that workers have to come back, for instance after a restart
START_LIMIT = 60.0  # s that a submitted stage waits for its tasks to start
LOOK_EVERY = 2.0  # s
CLOCK_SKEW = 5.0  # s between this node's clock and the master's
ANSWER_WITHIN = 10.0  # s

COLUMNS = "row bigint, input_ids array<int>, attention_mask array<tinyint>, label smallint"
"""`COLUMNS` of `training.workloads.text_classification.in_run` as a schema of Spark's."""


def train_rank(archive: str, spec_file: str, data: str, out: str) -> None:
    """One rank; runs in a process that torchrun starts inside a Spark task.

    Spark puts the archives of `--py-files` on the path of its own Python workers, not of the processes that
    they start; but it copies them into the executor's working directory, which those processes inherit. This
    function is pickled by value (it belongs to the submitted script), so it must bring everything it needs.
    """
    import sys  # the module's own imports are missing, too
    from pathlib import Path

    shipped = Path.cwd() / archive
    if not shipped.is_file():
        raise FileNotFoundError(f"Spark did not ship {archive} to {Path.cwd()}; submit it with --py-files.")
    sys.path.insert(0, str(shipped))
    from training.rank import end_if_failed, run_rank

    # The directory is app-20261121101036-0007/0: an executor that Spark starts again has another number.
    application, executor = Path.cwd().parts[-2:]
    starter = f"Spark's executor {executor} of {application}"
    end_if_failed(run_rank(Path(spec_file), Path(data), Path(out), starter=starter))


def main() -> int:
    """Submit the run to the standalone cluster and wait for it; returns the exit code."""
    parser = arguments("A run on Spark's standalone cluster.")
    parser.add_argument("--master-ui", required=True, help="address of the standalone master's web page")
    parser.add_argument(
        "--queue-limit",
        type=float,
        help="seconds that it may wait for executors, for instance until another user's run ends",
    )
    given = parser.parse_args()
    try:
        spec = read_spec(RunSpec, given.spec)
    except SpecError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    queue = watch_queue(given.master_ui, spec.run_id, given.queue_limit)
    spark = SparkSession.builder.appName(spec.run_id).getOrCreate()
    jvm = spark.sparkContext._jvm
    try:
        code = _run(spark, spec, given, queue)
    finally:
        spark.stop()
    if code == 0 and jvm is not None:
        end(jvm)
    return code


def end(jvm: JVMView) -> None:
    """End the driver's JVM, which Spark 3.5.1 leaves running after a stage with a barrier (SPARK-49479).

    spark-submit is that JVM, and a thread of the barrier keeps it. Spark 4's ends by itself.
    """
    if int(__version__.partition(".")[0]) >= 4:
        return
    # What was printed goes through the JVM.
    sys.stdout.flush()
    sys.stderr.flush()
    # It ends before it can answer.
    with suppress(Py4JError):
        jvm.java.lang.System.exit(0)


def _run(spark: SparkSession, spec: RunSpec, given: argparse.Namespace, queue: Future[float]) -> int:
    if spark.conf.get("spark.task.maxFailures", None) != "1":
        sys.stderr.write("Set spark.task.maxFailures=1: otherwise Spark silently retries failed training.\n")
        return 1
    archive = spark.conf.get("spark.submit.pyFiles", None) or ""
    if not archive.endswith(".zip") or "," in archive:
        sys.stderr.write(
            "Submit one archive with --py-files: the zip with the package training at its top level.\n"
        )
        return 1
    cores = int(spark.conf.get("spark.executor.cores", None) or 1)
    wait_for_room(given.master_ui, spec.run_id, spec.work.workers, cores)
    given.out.mkdir(parents=True, exist_ok=True)
    write_json(given.out / "launcher.json", {"queue_s": queue.result()})
    # True also if GPUs are only declared and training runs on the CPU: each task then gets its own.
    asks_for_gpus = int(spark.conf.get("spark.task.resource.gpu.amount", None) or 0) > 0
    if spec.conditions.device == "cuda" and not asks_for_gpus:
        sys.stderr.write("Set spark.task.resource.gpu.amount=1: the run trains on GPUs.\n")
        return 1
    if spec.conditions.tokenizing == "in_run":
        try:
            tokenise(spark, spec, given.data.absolute(), given.out.absolute())
        except DataError as error:
            sys.stderr.write(f"DataError: {error}\n")
            return 1
    # Imported now, while executors start: it loads pandas, which takes a second.
    from pyspark.ml.torch.distributor import TorchDistributor

    distributor = TorchDistributor(
        num_processes=spec.work.world_size, local_mode=False, use_gpu=asks_for_gpus
    )
    paths = [str(path.absolute()) for path in (given.spec, given.data, given.out)]
    start = Start(spark.sparkContext)
    try:
        distributor.run(train_rank, Path(archive).name, *paths)
    except Exception as error:
        if start.given_up:
            raise TimeoutError(
                f"Spark could not start all {spec.work.world_size} tasks within {START_LIMIT:.0f} s: on some "
                "worker, executors exit as soon as they start (a full disk, say); its log says why."
            ) from error
        raise
    return 0


def tokenise(spark: SparkSession, spec: RunSpec, data: Path, out: Path) -> None:
    """Make the run's tokens in a Spark job: one task for each rank to come, each with a part of the rows.

    Executors read the texts on their own nodes; the driver collects and writes the tokens.

    Raises:
        DataError: the data set on a node can't be used, or the tokens differ from the prepared ones.
    """
    # Imported here, to stay out of the measured start of runs that don't need them.
    from training.workloads.text_classification.in_run import (
        number_of_threads,
        prepare_in_run,
        samples_of,
        threads_text,
        tokenise_rows,
    )

    tasks, threads = spec.work.world_size, number_of_threads(spec)
    rows = spark.range(0, samples_of(spec), 1, tasks)
    function = partial(tokenise_rows, data=str(data), digest=spec.work.data_digest, threads=threads)
    tokens = rows.mapInArrow(function, COLUMNS)
    by = f"a Spark job of {tasks} task{'s' if tasks > 1 else ''}, {threads_text(threads)} each"
    try:
        prepare_in_run(spec, data, out, by, time.time(), tokens.toArrow)
    except PythonException as error:  # from a task: its text is the traceback, with the JVM's
        faults = [line for line in str(error).splitlines() if line.startswith("training.errors.DataError: ")]
        if faults:
            raise DataError(faults[0].partition(": ")[2]) from error
        raise


class Start:
    """Cancels the job unless its tasks start.

    Spark restarts executors that fail on one worker without end as long as another worker's live, and a
    barrier stage would wait forever.
    """

    def __init__(self, context: SparkContext) -> None:
        """Watch from now on, until all tasks of a stage run.

        The clock starts with the stage. Spark submits a barrier stage only once there is room for all of its
        tasks, so waiting for another application to end does not count.
        """
        self.given_up = False
        self._context = context
        threading.Thread(target=self._watch, name="start", daemon=True).start()

    def _watch(self) -> None:
        tracker, since = self._context.statusTracker(), None
        while True:
            time.sleep(LOOK_EVERY)
            stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
            there = [stage for stage in stages if stage is not None]
            if any(stage.numActiveTasks == stage.numTasks for stage in there):
                return
            if not there:
                continue
            since = since or time.monotonic()
            if time.monotonic() - since > START_LIMIT:
                self.given_up = True
                self._context.cancelAllJobs()
                return


def watch_queue(master_ui: str, name: str, limit: float | None = None) -> Future[float]:
    """Call `wait_for_resources` in a thread while the driver starts, which may take longer than the wait."""
    queue: Future[float] = Future()

    def watch() -> None:
        try:
            queue.set_result(wait_for_resources(master_ui, name, limit))
        except Exception as error:  # raised when the result is asked for
            queue.set_exception(error)

    threading.Thread(target=watch, name="queue", daemon=True).start()
    return queue


def wait_for_resources(master_ui: str, name: str, limit: float | None = None) -> float:
    """Wait until the standalone master has given executors to the application that is about to register.

    Args:
        master_ui: address of the master's web page.
        name: the application's.
        limit: seconds that it may wait; None = `QUEUE_LIMIT`.

    Returns:
        Seconds from the application's registration until then, to about 0.1 s.

    Raises:
        OSError: the master's page can't be read.
        TimeoutError: no such application registers, or it gets no executor within the limit.
    """
    begun, limit = time.time(), QUEUE_LIMIT if limit is None else limit
    while True:
        now = time.time()
        registered = [
            app
            for app in _master_state(master_ui)["activeapps"]
            if app["name"] == name and float(app["starttime"]) / 1000 >= begun - CLOCK_SKEW
        ]
        if registered and registered[-1]["state"] != "WAITING":
            return max(0.0, now - float(registered[-1]["starttime"]) / 1000)
        if not registered and now - begun > PATIENCE:
            raise TimeoutError(
                f"No application {name} registered with the Spark master at {master_ui} in {PATIENCE} s."
            )
        if registered and now - begun > limit:
            raise TimeoutError(
                f"Spark gave {name} no executor in {limit:.0f} s: check the workers at {master_ui}."
            )
        time.sleep(POLL_EVERY)


def wait_for_room(master_ui: str, name: str, workers: int, cores: int) -> None:
    """Wait until enough workers are there that have room for an executor once they are free.

    A busy worker counts, one that is too small does not: for an executor that fits nowhere Spark waits
    without end, and it says nothing.

    Args:
        master_ui: address of the master's web page.
        name: the application's; the driver has registered it.
        workers: how many executors it needs, each on a worker of its own.
        cores: of an executor.

    Raises:
        OSError: the master's page can't be read.
        TimeoutError: there are too few of these workers.
    """
    begun = time.monotonic()
    while True:
        state = _master_state(master_ui)
        app = next((app for app in reversed(state["activeapps"]) if app["name"] == name), None)
        alive = [worker for worker in state["workers"] if worker["state"] == "ALIVE"]
        lacking = {worker["host"]: _lacks(worker, app, cores) for worker in alive} if app else {}
        fit = [host for host, lacks in lacking.items() if not lacks]
        # Without the application there is nothing to compare, as the wait for executors will say.
        if app is None or len(fit) >= workers:
            return
        if time.monotonic() - begun > ROOM_LIMIT:
            told = [f"{host} lacks {' and '.join(lacks)}" for host, lacks in lacking.items() if lacks]
            raise TimeoutError(
                f"Spark has {len(fit)} of the {workers} workers that {name} needs "
                f"({'; '.join(told) or f'{len(alive)} are alive'}): check them at {master_ui}."
            )
        time.sleep(POLL_EVERY)


def _lacks(worker: dict[str, Any], app: dict[str, Any], cores: int) -> list[str]:
    """What a worker, even a free one, has too little of for an executor: `cores (1 of 2)`."""
    gpus = worker["resources"].get("gpu", {"addresses": []})["addresses"]
    wanted = sum(need["amount"] for need in app["resourcesperexecutor"] if need["name"] == "gpu")
    compared = {
        "cores": (worker["cores"], cores),
        "MB of memory": (worker["memory"], app["memoryperexecutor"]),
        "GPUs": (len(gpus), wanted),
    }
    return [f"{what} ({there} of {need})" for what, (there, need) in compared.items() if there < need]


def _master_state(master_ui: str) -> dict[str, Any]:
    # Never through a proxy: the master is in the cluster's own network.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"{master_ui.rstrip('/')}/json/", timeout=ANSWER_WITHIN) as answer:
        state: dict[str, Any] = json.load(answer)
    return state


if __name__ == "__main__":
    sys.exit(main())
