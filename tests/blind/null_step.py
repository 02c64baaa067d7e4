"""A rank of the blind test whose steps are nothing but a wait, by the script of the matrix `null-step`.

`python -m tests.blind.null_step DOSES WAITS OUT --steps …`: DOSES and WAITS are as of `tests.blind.rank`; the
rest is for the script. Its times go into a file in the folder OUT, as a rank of the job leaves them.
"""

from __future__ import annotations

import importlib.util
import json
import os
import resource
import sys
import time
import types
from pathlib import Path
from typing import Any, Final

from tests.blind.rank import Places, Waits, slow_down, slow_output

SCRIPT: Final = Path(__file__).parents[2] / "experiments" / "matrices" / "null_step.py"


def main() -> None:
    """Take the steps."""
    doses, waits, out = json.loads(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
    said, usual = dict[str, float](), sys.stdout
    calls: Any = types.ModuleType("trainbed")

    def metrics(_: int, **figures: float) -> None:
        said.update(figures)
        sys.stdout = usual  # what follows belongs to no step

    calls.phase, calls.metrics, calls.digest = lambda _: None, metrics, lambda _: None
    sys.modules["trainbed"] = calls
    script = _loaded()
    slow_down(doses, waits, _places(script))
    steps = int(sys.argv[sys.argv.index("--steps") + 1])
    step_ms = float(sys.argv[sys.argv.index("--step-ms") + 1])
    del sys.argv[1:4]
    began, before = time.perf_counter(), _processor_s()
    script.main()
    found = {
        "train_s": time.perf_counter() - began,
        "steps": steps,
        "in_steps_s": steps * (step_ms + said["beyond_ms"]) / 1000,
        "processor_s": _processor_s() - before,
    }
    (out / f"rank-{os.environ['RANK']}.json").write_text(json.dumps(found), encoding="utf-8")


def _loaded() -> Any:
    spec = importlib.util.spec_from_file_location("null_step", SCRIPT)
    assert spec is not None and spec.loader is not None  # it is a Python file
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


def _places(script: Any) -> Places:
    """Where a wait is put; that of `hidden` follows the step's own."""

    def slow_waits(wait: Waits) -> None:
        usual = script.wait_until

        def wait_until(moment: float) -> None:
            usual(moment)
            wait()

        script.wait_until = wait_until

    return {"printed_lines": slow_output, "hidden": slow_waits}


def _processor_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
