"""A stand-in for ansible-playbook that writes the files the real playbooks would.

Started as `fake-ansible-playbook playbooks/X.yml -e @vars.json`. In the folder that FAKE_CLUSTER names it
reads `cluster.json` and `behaviour.json`, which control it, and writes `calls.jsonl`.
"""

import hashlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path.cwd()))  # the checkout it is called in

from training.util.digest import code_digest

BESIDE = ("run_concurrently", "run_place", "run_nodes", "run_waits_s")


def main() -> int:
    playbook = Path(sys.argv[1]).stem
    folder = Path(os.environ["FAKE_CLUSTER"])
    variables = json.loads(Path(sys.argv[3].removeprefix("@")).read_text())
    behaviour = json.loads((folder / "behaviour.json").read_text())
    call = {
        "playbook": playbook,
        "state": variables.get("cluster_lock_state"),
        "run": variables.get("run_id"),
        "told": {name: variables[name] for name in BESIDE if name in variables},
    }
    with (folder / "calls.jsonl").open("a") as calls:
        calls.write(json.dumps(call) + "\n")
    print(f"PLAY [{playbook}] ****\n", flush=True)
    playbooks = {
        "prepare": prepare,
        "lock": lock,
        "run": run,
        "stop": stop,
        "export": export,
        "trials": trials,
    }
    status = playbooks[playbook](folder, variables, behaviour)
    print("\nPLAY RECAP ****\nmaster : ok=1")
    return status


def fatal(message: str) -> int:
    print(f"fatal: [master]: FAILED! => \n    changed: false\n    msg: >-\n        {message}")
    return 2


def prepare(folder: Path, variables: dict[str, Any], behaviour: dict[str, Any]) -> int:
    destination = Path(variables["prepare_dest"])
    print("TASK [dataset : Prepare the data set] ****", flush=True)
    on_node = folder / "prepare.log"
    (destination / "follow.json").write_text(json.dumps({"shell": ["bash", "-c"], "log": str(on_node)}))
    end = time.monotonic() + behaviour.get("prepare_seconds", 0)
    while time.monotonic() < end:
        with on_node.open("a") as log:
            log.write(behaviour.get("prepare_says", "Nothing to count.") + "\n")
        time.sleep(0.2)
    if "prepare_fails" in behaviour:
        return fatal(behaviour["prepare_fails"])
    for number, asked in enumerate(variables["prepare_data_sets"], start=1):
        spec = asked["spec"]["data"]
        digest = hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()
        (destination / f"dataset-{number}.json").write_text(
            json.dumps({"spec": spec, "digest": digest, "counts": {"train": spec["train"]}})
        )
    (destination / "cluster.json").write_text((folder / "cluster.json").read_text())
    return 0


def lock(folder: Path, variables: dict[str, Any], behaviour: dict[str, Any]) -> int:
    holder = folder / "lock"
    pid = str(variables["cluster_lock_pid"])
    if variables["cluster_lock_state"] == "free":
        if holder.exists() and holder.read_text() == pid:
            holder.unlink()
        return 0
    if "lock_held" in behaviour:
        return fatal(behaviour["lock_held"])
    if holder.exists():
        print("ok: [master] => \n    msg: Taking over the cluster's lock: 'run' (process 1) is gone.")
    holder.write_text(pid)
    return 0


def stop(_folder: Path, _variables: dict[str, Any], behaviour: dict[str, Any]) -> int:
    time.sleep(behaviour.get("stop_seconds", 0))
    return fatal(behaviour["stop_fails"]) if "stop_fails" in behaviour else 0


def export(folder: Path, variables: dict[str, Any], behaviour: dict[str, Any]) -> int:
    (folder / "exporting").write_text(variables["run_id"])
    time.sleep(behaviour.get("export_seconds", 0))
    assert (folder / "lock").exists() and Path(variables["run_code_archive"]).exists()
    shared = Path(json.loads((folder / "cluster.json").read_text())["shared_storage_path"])
    run_dir = shared / "runs" / variables["run_id"] / variables["run_attempt"]
    if not run_dir.is_dir():
        return fatal(f"{run_dir} is gone ({variables['export_made_on']}).")
    home = Path(variables["export_dest"]) / "exported"
    home.mkdir()
    (home.parent / "DIGEST").write_text(behaviour.get("environment", "e" * 64) + "\n")
    (home / "model.safetensors").write_text("weights")
    work = json.dumps(variables["run_spec"]["work"], sort_keys=True)
    note = {"run_id": variables["run_id"], "epoch": 2}
    note["weights_digest"] = hashlib.sha256(work.encode()).hexdigest()
    (home / "trainbed.json").write_text(json.dumps(note | behaviour.get("note", {})))
    return 0


def trials(folder: Path, variables: dict[str, Any], behaviour: dict[str, Any]) -> int:
    how, log = behaviour["search"], folder / "search-progress.jsonl"
    (folder / "search-variables.json").write_text(json.dumps(variables))
    Path(variables["search_follow"]).write_text(json.dumps({"shell": ["bash", "-c"], "log": str(log)}))
    with log.open("a") as file:
        for line in how.get("lines", []):
            file.write(json.dumps(line) + "\n")
            file.flush()
            time.sleep(how.get("pause", 0))
    if how.get("hangs"):
        (folder / "hanging").write_text(variables["search_label"])
        time.sleep(600)
    fetched = Path(variables["search_dest"]) / log.name.removeprefix("search-")
    fetched.write_bytes(log.read_bytes())
    if "result" in how:  # a last line, which came too late to be followed
        with fetched.open("a") as file:
            file.write(json.dumps(how["result"]) + "\n")
    if "torn" in how:
        with fetched.open("a") as file:
            file.write(how["torn"])
    return fatal(how["fails"]) if "fails" in how else 0


def run(folder: Path, variables: dict[str, Any], behaviour: dict[str, Any]) -> int:
    spec, run_id = variables["run_spec"], variables["run_id"]
    work = spec["work"]
    destination = Path(variables["run_dest"])
    assert not list(destination.iterdir()), "run_dest must be empty"
    assert Path(variables["run_code_archive"]).exists()
    shared = Path(json.loads((folder / "cluster.json").read_text())["shared_storage_path"])
    run_dir = shared / "runs" / run_id / variables["run_attempt"]
    run_dir.mkdir(parents=True)
    how: dict[str, Any] = next(
        (value for key, value in behaviour.get("runs", {}).items() if run_id.startswith(key)), {}
    )
    started = time.time()
    steps = 4
    progress = (run_dir / "progress.jsonl").open("a", buffering=1)

    def event(kind: str, **figures: object) -> None:
        progress.write(json.dumps({"event": kind, "time": time.time(), **figures}) + "\n")

    if spec["conditions"]["program"] == "empty":  # which leaves nothing of its own
        time.sleep(how.get("takes", 0))
        return leave(destination, spec, started, how, variables.get("run_nodes"))
    event("start", epochs=work["epochs"], steps_per_epoch=steps, world_size=work["workers"], parameters=10)
    rate = 210.0 / work["workers"]
    ranks = [
        {"rank": rank, "host": f"worker{rank + 1}", "silent_s": 0.0, "phase": "exposed_sync", "epoch": 1}
        | {"step": steps, "loss": 0.61 + rank / 10, "samples_per_s": rate, "memory_mb": 300.0}
        | how.get(f"tells-{rank}", {})
        for rank in range(work["workers"])
    ]
    for epoch in range(1, work["epochs"] + 1):
        figures = {"loss": 0.61, "lr": 0.001, "samples_per_s": 210.0, "ranks": ranks}
        event("step", epoch=epoch, step=steps, steps=steps, **figures)
    time.sleep(how.get("takes", 0))
    if "tells_error" in how:
        event("error", rank=0, message=how["tells_error"])
    if how.get("meets"):  # how many others must be running at the same time
        (folder / f"here-{run_id}").touch()
        while len(list(folder.glob("here-*"))) <= how["meets"]:
            time.sleep(0.02)
    while how.get("waits") and not (folder / "go-on").exists():
        time.sleep(0.05)
    if how.get("hangs"):
        child = os.fork()
        if child == 0:
            os.setsid()  # as Ansible's own workers do
            (folder / "worker.pid").write_text(str(os.getpid()))
            time.sleep(600)
            os._exit(0)
        (folder / "hanging").write_text(run_id)
        time.sleep(600)
    return leave(destination, spec, started, how, variables.get("run_nodes"))


def attempt_number(destination: Path) -> int:
    return int(destination.parent.name)


def leave(
    destination: Path, spec: dict[str, Any], started: float, how: dict[str, Any], given: list[str] | None
) -> int:
    work = spec["work"]
    nodes = given or [f"worker{rank + 1}" for rank in range(work["workers"])]

    def write(name: str, content: object) -> None:
        (destination / name).write_text(json.dumps(content))

    (destination / "logs").mkdir()
    exit_code = 1 if how.get("fails") else 0
    write("spec.json", spec)
    command = ["launch", "--conf", "authenticate.secret=hunter2"]
    write(
        "launch.json",
        {
            "stack": spec["stack"],
            "started": started - 0.5,
            "ended": time.time(),
            "exit_code": exit_code,
            "command": command,
            "nodes": nodes,
        },
    )
    if how.get("fails") == "rank":
        write(
            "error-0.json",
            {
                "rank": 0,
                "host": "worker1",
                "type": "RuntimeError",
                "message": "Connection closed by peer",
                "traceback": "",
            },
        )
        write(
            "error-1.json",
            {
                "rank": 1,
                "host": "worker2",
                "type": "ValueError",
                "message": "no such review",
                "traceback": "",
            },
        )
    if how.get("fails") == "log":
        (destination / "logs" / "worker1.log").write_text(
            "starting\nImportError: no module named torch\n=====\n"
        )
    if exit_code:
        return fatal("non-zero return code")
    if spec["conditions"]["program"] == "empty" and not how.get("trains"):
        return 0
    weights = hashlib.sha256(json.dumps(work, sort_keys=True).encode()).hexdigest()
    seconds = 10.0 / work["workers"] * (1.5 if spec["stack"] == "slow" else 1.0)
    # By up to this fraction up or down, the same for every attempt at a run.
    share = int(hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()[:8], 16) / 0xFFFFFFFF
    seconds *= 1 + how.get("spread", 0) * (2 * share - 1)
    cluster = json.loads((Path(os.environ["FAKE_CLUSTER"]) / "cluster.json").read_text())
    # By attempt, from the first on; then once.
    starts = next(iter(how.get("starts", [])[attempt_number(destination) - 1 :]), 1)
    for rank in range(work["workers"]):
        content = {
            "rank": rank,
            "local_rank": 0,
            "world_size": work["workers"],
            "host": nodes[rank],
            "pid": 7,
            "uid": 990,
            "affinity": [rank],
            "threads": spec["conditions"]["threads"],
            "interop_threads": 1,
            "OMP_NUM_THREADS": "1",
            "cpu_capability": "AVX2",
            "versions": {"python": "3.11.2", "torch": "2.13.0"},
            "environment_digest": cluster.get("environments", {}).get(
                "newest" if spec["conditions"]["libraries"] == "newest" else spec["stack"],
                cluster["environment_digest"],
            ),
            "code_digest": code_digest(),
            "times": {
                "process_start": started - 0.4,
                "imports_done": started - 0.3,
                "train_start": started,
                "train_end": started + 0.01,
            },
            "phases": {"imports": 0.001, "forward": 0.004, "backward": 0.005, "other": 0.001},
            "train_s": seconds + rank / 10,
            "steps": 8,
            "weights_digest": weights,
        }
        write(f"rank-{rank}.json", content | how.get(f"rank-{rank}", {}))
        mark = {"rank": rank, "host": nodes[rank], "boot": "b", "by": "torchrun"}
        times = [started + 7 * again for again in range(starts)]
        marks = [json.dumps(mark | {"started": moment}) + "\n" for moment in times]
        (destination / f"starts-{rank}.jsonl").write_text("".join(marks))
        if spec["conditions"]["trace"] is not None:
            (destination / f"trace-{rank}.json.gz").write_bytes(b"a trace")
    count = work["data"]["validation"]
    epochs = [
        {
            "epoch": epoch,
            "train_loss": 0.6,
            "seconds": 5.0,
            "lr": 0.0,
            "validation_loss": 0.5,
            "validation_accuracy": 0.78,
            "validation_correct": int(count * 0.78),
            "validation_count": count,
        }
        for epoch in range(1, work["epochs"] + 1)
    ]
    result = {
        "status": "ok",
        "epochs": epochs,
        "weights_digest": weights,
        "validation_count": count,
        "train_s": seconds,
    }
    write("result.json", result | how.get("result", {}))
    return 0


sys.exit(main())
