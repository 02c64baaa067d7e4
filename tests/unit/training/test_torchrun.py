"""The real launcher, in real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.unit.training.training_helpers import Datasets, Run, data_spec, free_port, run_spec

ROOT = Path(__file__).parents[3]


def test_torchrun_gives_the_weights_that_other_launchers_give(
    run: Run, datasets: Datasets, tmp_path: Path
) -> None:
    prepared = datasets(data_spec())
    spec = run_spec(prepared, data_spec(), workers=2)
    other, _ = run(spec, prepared.path)
    file, out = tmp_path / "spec.json", tmp_path / "out"
    file.write_text(spec.model_dump_json(), encoding="utf-8")
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2"]
    command += ["--master-addr=127.0.0.1", f"--master-port={free_port()}", "-m", "training.launchers.ddp"]
    command += ["--spec", str(file), "--data", str(prepared.path), "--out", str(out)]
    subprocess.run(command, cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1"}, check=True, timeout=120)
    digests = [json.loads((folder / "result.json").read_text())["weights_digest"] for folder in (out, other)]
    assert digests[0] == digests[1]
    ranks = [json.loads((out / f"rank-{rank}.json").read_text()) for rank in (0, 1)]
    assert [rank["local_rank"] for rank in ranks] == [0, 1]
    assert all(rank["phases"]["exposed_sync"] > 0 for rank in ranks)
