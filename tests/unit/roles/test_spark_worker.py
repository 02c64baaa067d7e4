"""A Spark worker starts with the GPUs that the node has, and its log says what is wrong with them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.roles.loading import ROOT

SCRIPT = ROOT / "roles/spark/files/spark-worker"


def gpu(index: int, **others: Any) -> dict[str, Any]:
    return {"index": str(index), "uuid": f"GPU-{index}", "name": "Tesla T4", "mig": False, **others}


def start(folder: Path, listed: dict[str, Any]) -> tuple[str, list[str], Path]:
    """Start the worker with a stand-in for the lister; returns its stderr, its options and its resources."""
    lister, resources = folder / "lister-stand-in", folder / "gpus.json"
    lister.write_text(f"#!/bin/sh\necho '{json.dumps(listed)}'\n", encoding="utf-8")
    lister.chmod(0o755)
    show = ["sh", "-c", 'echo "$SPARK_WORKER_OPTS $1"', "sh", "--cores"]
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_WORKER_OPTS"}
    done = subprocess.run(
        [sys.executable, SCRIPT, "--lister", f"{lister} --pseudo 0", "--resources", resources, "--", *show],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    return done.stderr, done.stdout.split(), resources


@pytest.mark.parametrize(
    ("listed", "offered", "says"),
    [
        ({"gpus": [], "trouble": None}, [], "This worker offers none."),
        (
            {"gpus": [gpu(0), gpu(1)], "trouble": None},
            ["0", "1"],
            "This worker offers 0 (Tesla T4, GPU-0), 1 (Tesla T4, GPU-1).",
        ),
        ({"gpus": [], "trouble": "The driver hangs."}, [], "The driver hangs."),
        (
            {"gpus": [gpu(0, mig=True), gpu(1)], "trouble": None},
            ["1"],
            "GPU 0 (Tesla T4) is divided by MIG, whose parts TorchDistributor can't address",
        ),
    ],
)
def test_a_worker_starts_whatever_the_gpus_are(
    tmp_path: Path, listed: dict[str, Any], offered: list[str], says: str
) -> None:
    said, got, resources = start(tmp_path, listed)
    assert f"GPUs: {says}" in said
    assert got[-1] == "--cores"  # the worker's own options are left alone
    if not offered:
        assert got == ["--cores"] and not resources.exists()
        return
    assert got[:-1] == [
        f"-Dspark.worker.resource.gpu.amount={len(offered)}",
        f"-Dspark.worker.resourcesFile={resources}",
    ]
    named = {"componentName": "spark.worker", "resourceName": "gpu"}
    assert json.loads(resources.read_text(encoding="utf-8")) == [{"id": named, "addresses": offered}]
