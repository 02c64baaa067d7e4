"""The empty programs: nothing of the package `training` is in what measures a stack's bare start."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.training.test_spec import work
from tests.unit.training.training_helpers import driver_that_ends
from training.errors import LaunchError
from training.rank import check_program
from training.spec import Conditions, RunSpec

LAUNCHERS = Path(__file__).parents[4] / "training/launchers"


def test_the_program_does_nothing_and_imports_nothing() -> None:
    path = LAUNCHERS / "empty.py"
    (docstring,) = ast.parse(path.read_text(encoding="utf-8")).body
    assert isinstance(docstring, ast.Expr)
    done = subprocess.run([sys.executable, "-I", str(path)], capture_output=True, text=True, check=True)
    assert done.stdout == done.stderr == ""


def test_training_does_not_take_the_place_of_an_empty_program() -> None:
    check_program(RunSpec(stack="ddp", work=work()))
    with pytest.raises(LaunchError, match=r"start an empty program .* and this is training"):
        check_program(RunSpec(stack="ddp", work=work(), conditions=Conditions(program="empty")))


def test_sparks_imports_nothing_of_this_package() -> None:
    tree = ast.parse((LAUNCHERS / "spark_empty.py").read_text(encoding="utf-8"))
    found = {each.module for each in ast.walk(tree) if isinstance(each, ast.ImportFrom)}
    found |= {name.name for each in ast.walk(tree) if isinstance(each, ast.Import) for name in each.names}
    own: set[str | None] = {"__future__", "argparse", "contextlib"}
    assert found == own | {"py4j.protocol", "pyspark", "pyspark.ml.torch.distributor", "pyspark.sql"}


@pytest.mark.parametrize(("gpus", "used"), [(None, False), ("1", True)])
@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("release", ["3.5.1", "4.3.0"])
def test_sparks_function_is_distributed_as_training_is(
    monkeypatch: pytest.MonkeyPatch, gpus: str | None, release: str, *, used: bool, fails: bool
) -> None:
    """On stand-ins for the session and the distributor, which need a cluster."""
    pytest.importorskip("pyspark")
    from training.launchers import spark_empty

    done: list[Any] = []

    class Distributor:
        def __init__(self, **given: Any) -> None:
            done.append(given)

        def run(self, function: Any) -> None:
            done.append(function())
            if fails:
                raise RuntimeError("a worker is gone")

    session = SimpleNamespace(
        conf=SimpleNamespace(get=lambda name, _: gpus if name == "spark.task.resource.gpu.amount" else None),
        sparkContext=SimpleNamespace(_jvm=driver_that_ends(done)),
        stop=lambda: done.append("stopped"),
    )
    builder = SimpleNamespace(getOrCreate=lambda: session)
    monkeypatch.setattr(spark_empty, "SparkSession", SimpleNamespace(builder=builder))
    monkeypatch.setattr(spark_empty, "TorchDistributor", Distributor)
    monkeypatch.setattr(spark_empty, "__version__", release)
    monkeypatch.setattr(sys, "argv", ["spark_empty.py", "--processes", "4"])
    if fails:
        with pytest.raises(RuntimeError, match="a worker is gone"):
            spark_empty.main()
    else:
        spark_empty.main()
    ended = [] if fails or release != "3.5.1" else ["ended with 0"]
    assert done == [{"num_processes": 4, "local_mode": False, "use_gpu": used}, None, "stopped", *ended]
