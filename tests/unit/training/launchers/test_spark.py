"""The Spark launcher, as far as it goes without a cluster."""

from __future__ import annotations

import json
import multiprocessing
import shutil
import threading
import time
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
from pyspark.status import SparkStageInfo

from tests.unit.training.training_helpers import Datasets, data_spec, driver_that_ends, load, run_spec
from training.launchers import spark
from training.spec import Conditions, RunSpec


@contextmanager
def master(*answers: list[dict[str, Any]], workers: Sequence[dict[str, Any]] = ()) -> Iterator[str]:
    """A web page that answers with one list of applications after another, and keeps repeating the last.

    The workers are the same each time.
    """
    left = list(answers)

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            apps = left.pop(0) if len(left) > 1 else left[0]
            body = json.dumps({"activeapps": apps, "workers": workers}).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body if self.path == "/json/" else b"")

        def log_message(self, *_: Any) -> None:
            return None

    server = HTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def application(name: str, state: str, started: float) -> dict[str, Any]:
    return {"id": "app-1", "name": name, "state": state, "starttime": started * 1000}


def test_the_queue_ends_when_the_master_grants_executors() -> None:
    now = time.time()
    old = application("mine", "RUNNING", now - 1000)  # a leftover of the same name
    waiting, running = application("mine", "WAITING", now), application("mine", "RUNNING", now)
    with master([old], [old, waiting], [old, waiting], [old, running]) as page:
        waited = spark.watch_queue(page, "mine").result(timeout=10)
    assert 3 * spark.POLL_EVERY <= waited < 5


def test_an_application_that_never_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark, "PATIENCE", 0.2)
    with (
        master([]) as page,
        pytest.raises(TimeoutError, match="No application mine registered with the Spark master"),
    ):
        spark.watch_queue(page, "mine").result(timeout=10)


def test_an_application_that_gets_no_executor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark, "QUEUE_LIMIT", 0.2)
    waiting = application("mine", "WAITING", time.time())
    with master(*[[waiting]] * 20) as page, pytest.raises(TimeoutError, match="Spark gave mine no executor"):
        spark.watch_queue(page, "mine").result(timeout=10)
    # A longer limit lets it wait for another user's whole run.
    running = application("mine", "RUNNING", time.time())
    with master(*[[waiting]] * 5, [running]) as page:
        assert spark.watch_queue(page, "mine", limit=60.0).result(timeout=10) >= 0.2


def worker(host: str, cores: int, memory: int = 1024, gpus: int = 0, state: str = "ALIVE") -> dict[str, Any]:
    """A worker as Spark 4.3's master describes it, as far as it is read."""
    resources = {"gpu": {"name": "gpu", "addresses": [str(at) for at in range(gpus)]}} if gpus else {}
    return {"host": host, "cores": cores, "memory": memory, "resources": resources, "state": state}


@pytest.mark.parametrize(
    ("workers", "gpus", "said"),
    [
        ([worker("a", 2), worker("b", 3)], 0, None),
        ([worker("a", 2, gpus=2), worker("b", 2, gpus=2)], 2, None),
        (
            [worker("a", 2), worker("b", 1)],
            0,
            r"Spark has 1 of the 2 workers that mine needs \(b lacks cores \(1 of 2\)\)",
        ),
        (
            [worker("a", 1, memory=512), worker("b", 2, gpus=1)],
            2,
            r"has 0 of .*\(a lacks cores \(1 of 2\) and MB of memory \(512 of 1024\) and GPUs \(0 of 2\); "
            r"b lacks GPUs \(1 of 2\)\)",
        ),
        ([worker("a", 2), worker("b", 2, state="DEAD")], 0, r"has 1 of the 2 .*\(1 are alive\)"),
    ],
)
def test_a_run_that_its_workers_have_no_room_for_is_given_up_with_what_they_lack(
    workers: list[dict[str, Any]], gpus: int, said: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark, "ROOM_LIMIT", 0.2)
    wanted = [{"name": "gpu", "amount": gpus}] if gpus else []
    app = application("mine", "WAITING", time.time()) | {
        "memoryperexecutor": 1024,
        "resourcesperexecutor": wanted,
    }
    with master([app], workers=workers) as page:
        if said is None:
            spark.wait_for_room(page, "mine", 2, 2)
            return
        with pytest.raises(TimeoutError, match=said):
            spark.wait_for_room(page, "mine", 2, 2)


class MadeUpContext:
    """As much of a SparkContext as `Start` uses: a stage, and how many of its two tasks run at each look."""

    def __init__(self, *running: int) -> None:
        self.running, self.cancelled = list(running), threading.Event()

    def statusTracker(self) -> MadeUpContext:
        return self

    def getActiveStageIds(self) -> list[int]:
        return [1]

    def getStageInfo(self, number: int) -> SparkStageInfo:
        running = self.running.pop(0) if len(self.running) > 1 else self.running[0]
        return SparkStageInfo(number, 0, "train", 2, running, 0, 0)

    def cancelAllJobs(self) -> None:
        self.cancelled.set()


def test_a_stage_whose_tasks_never_all_start_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark, "LOOK_EVERY", 0.01)
    monkeypatch.setattr(spark, "START_LIMIT", 0.2)
    context = MadeUpContext(0, 1, 0)
    start = spark.Start(context)  # type: ignore[arg-type]
    assert context.cancelled.wait(10) and start.given_up
    # A stage that starts late is left alone, whatever happens to it then.
    context = MadeUpContext(0, 1, 2, 0)
    start = spark.Start(context)  # type: ignore[arg-type]
    assert not context.cancelled.wait(1) and not start.given_up


@pytest.mark.parametrize(("release", "said"), [("3.5.1", ["ended with 0"]), ("4.3.0", [])])
def test_the_driver_of_spark_3_is_ended(
    monkeypatch: pytest.MonkeyPatch, release: str, said: list[str]
) -> None:
    """On a stand-in for its JVM, which ends before it answers."""
    done: list[str] = []
    monkeypatch.setattr(spark, "__version__", release)
    spark.end(driver_that_ends(done))
    assert done == said


def test_a_rank_uses_the_code_that_was_shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os
    import sys

    work = tmp_path / "app-7" / "3"  # as a worker names them
    work.mkdir(parents=True)
    with zipfile.ZipFile(work / "shipped.zip", "w") as archive:
        archive.writestr("training/__init__.py", "")
        archive.writestr("training/rank.py", SHIPPED)
    monkeypatch.chdir(work)
    pid = os.fork()
    if not pid:
        for name in [name for name in sys.modules if name.partition(".")[0] == "training"]:
            del sys.modules[name]
        sys.path[:] = [path for path in sys.path if path and not (Path(path) / "training").exists()]
        spark.train_rank("shipped.zip", "s", "d", str(tmp_path / "seen"))
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert (tmp_path / "seen").read_text() == "s d Spark's executor 3 of app-7"
    with pytest.raises(FileNotFoundError, match=r"did not ship absent.zip .* submit it with --py-files"):
        spark.train_rank("absent.zip", "s", "d", "o")


SHIPPED = """
def run_rank(spec, data, out, starter):
    out.write_text(f"{spec} {data} {starter}")
    return 0

def end_if_failed(status):
    assert status == 0
"""


@pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java, which is not installed")
def test_a_spark_job_makes_the_tokens_of_a_run(datasets: Datasets, tmp_path: Path) -> None:
    """A real job, though on this machine alone: two tasks in Python workers, each with a part of the rows."""
    prepared = datasets(data_spec())
    usual = run_spec(prepared, data_spec(), workers=2)
    text = usual.model_copy(update={"conditions": Conditions(tokenizing="in_run")}).model_dump_json()
    damaged = shutil.copytree(prepared.path, tmp_path / "damaged")
    with (damaged / "validation.texts.arrow").open("ab") as file:
        file.write(b"x")
    arguments = (text, [prepared.path, damaged], tmp_path)
    # In a process of its own: other tests must not fork the gateway to the JVM.
    process = multiprocessing.get_context("spawn").Process(target=spark_jobs, args=arguments)
    process.start()
    process.join(180)
    assert process.exitcode == 0
    out = tmp_path / prepared.path.name
    note = load(out / "prepared.json")
    assert (note["rows"], note["by"]) == (48, "a Spark job of 2 tasks, 1 thread each")
    for name in ("train.arrow", "validation.arrow"):
        assert (out / "tokens" / name).read_bytes() == (prepared.path / name).read_bytes()
    assert (
        (tmp_path / "damaged-said").read_text().startswith(f"The data set {damaged} is damaged (validation")
    )
    assert not (tmp_path / "damaged" / "prepared.json").exists()


def spark_jobs(text: str, folders: list[Path], out: Path) -> None:
    """Have Spark tokenise each data set's texts; the error about one that can't be used goes to a file."""
    from pyspark.sql import SparkSession

    from training.errors import DataError

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    session = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
    try:
        for folder in folders:
            try:
                spark.tokenise(session, RunSpec.model_validate_json(text), folder, out / folder.name)
            except DataError as error:
                (out / f"{folder.name}-said").write_text(str(error))
    finally:
        session.stop()
