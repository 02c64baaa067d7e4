#!/opt/trainbed/env/current/bin/python
"""A stand-in for Determined's agent 0.38.1: offers slots to the stand-in master, and runs what it is given.

Like the real agent, it does not retry its first connection, gives up a lost connection after five tries, and
starts containers as the training user, with the experiment's image, bind mounts and environment, in which a
startup-hook.sh of the experiment's context comes first. When it starts, it takes up containers that still
run; those that don't are gone, whatever they ended with. Unlike the real one, it starts torchrun instead of
Determined's own launcher, which needs a real master: the Core API then works as it does outside a cluster.
"""

from __future__ import annotations

import base64
import json
import shlex
import shutil
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import yaml

TRIES = 5
LAUNCHER = "python3 -m determined.launch.torch_distributed -- python3"
#: What the real one's containers do before their ranks start, as far as a trial's log shows it.
ENTRYPOINT = """\
set -ex
test -f startup-hook.sh && source startup-hook.sh
set +x
exec "$@"
"""
USER = "6100:6100"
LABEL = "ai.determined.container.type=task-container"
NAME = "determined-standin-"  # how the names of its containers begin; the rest is the key of the trial's run
WORK = Path("/var/lib/determined-standin")
NOT_STARTED = 125  # docker's own code for a container that it can't start
REMOVED = 137


class Agent:
    """One agent and its containers, by the keys of their trials' runs."""

    def __init__(self, config: dict[str, Any]) -> None:
        """Read the settings, this node's address from a first connection, and which containers are left."""
        tls = config.get("security", {}).get("tls", {})
        scheme = "https" if tls.get("enabled") else "http"
        self._url = f"{scheme}://{config['master_host']}:{config['master_port']}/standin/agents"
        context = ssl.create_default_context(cafile=tls["master_cert"]) if tls.get("enabled") else None
        handlers = [urllib.request.ProxyHandler({})]
        if context:
            handlers.append(urllib.request.HTTPSHandler(context=context))  # type: ignore[arg-type]
        self._opener = urllib.request.build_opener(*handlers)
        self._id, self._slots = config["agent_id"], int(config.get("artificial_slots", 1))
        with socket.create_connection(
            (config["master_host"], config["master_port"]), timeout=5
        ) as connection:
            self._address = connection.getsockname()[0]
        self._fresh = True
        self._running: set[str] = set()
        self._ended: dict[str, dict[str, Any]] = {}
        self._gone: dict[str, list[str]] = {}
        self._reattach()

    def exchange(self) -> None:
        """Report to the master, and do what it asks for."""
        for key in sorted(self._running):
            if (status := self._status(key)) is not None:
                self._ended[key] = {"status": status, "log": log_of(key)}
                self._remove(key)
        body = {
            "id": self._id,
            "slots": self._slots,
            "address": self._address,
            "fresh": self._fresh,
            "running": sorted(self._running),
            "ended": self._ended,
            "gone": self._gone,
        }
        request = urllib.request.Request(
            self._url, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with self._opener.open(request, timeout=10) as answered:
            wanted: dict[str, Any] = json.load(answered)["run"]
        self._fresh, self._ended, self._gone = False, {}, {}
        for key in sorted(self._running - set(wanted)):
            self._remove(key)
        for key, each in wanted.items():
            if key not in self._running:
                self._start(key, each)

    def _reattach(self) -> None:
        """Take up the containers of an earlier process that still run; the others are gone."""
        listed = docker("ps", "--all", "--filter", f"label={LABEL}", "--format", "{{ .Names }}").stdout
        for key in (name.removeprefix(NAME) for name in listed.split() if name.startswith(NAME)):
            if self._status(key) is None:
                self._running.add(key)
            else:
                self._gone[key] = log_of(key)
                self._remove(key)

    def _start(self, key: str, wanted: dict[str, Any]) -> None:
        config = wanted["config"]
        work = WORK / key
        for file in wanted["context"]:
            path = work / file["path"]
            if file.get("type") == 53:  # a directory
                path.mkdir(parents=True, exist_ok=True)
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(base64.b64decode(file["content"]))
        mounts = [
            f"{mount['host_path']}:{mount['container_path']}:{'ro' if mount.get('read_only') else 'rw'}"
            for mount in config["bind_mounts"]
        ]
        variables = [
            *config["environment"]["environment_variables"],
            *(f"{name}={value}" for name, value in wanted["environment"].items()),
        ]
        trial, run = map(int, key.split("."))
        torchrun = (
            f"torchrun --nnodes={len(wanted['nodes'])} --nproc-per-node={wanted['slots']} "
            f"--node-rank={wanted['rank']} --master-addr={wanted['nodes'][0]} "
            f"--master-port={29400 + (trial + 97 * (run - 1)) % 1000}"
        )
        entrypoint = config["entrypoint"].replace(LAUNCHER, torchrun)
        started = docker(
            *("run", "--detach", "--name", f"{NAME}{key}", "--label", LABEL, "--network", "host"),
            *("--user", USER, "--workdir", "/run/determined/workdir"),
            *(
                word
                for mount in [f"{work}:/run/determined/workdir:ro", *mounts]
                for word in ("--volume", mount)
            ),
            *(word for each in variables for word in ("--env", each)),
            *(config["environment"]["image"], "bash", "-c", ENTRYPOINT, "bash", *shlex.split(entrypoint)),
        )
        if started.returncode:
            self._ended[key] = {"status": NOT_STARTED, "log": started.stderr.splitlines()}
            self._remove(key)
        else:
            self._running.add(key)

    def _status(self, key: str) -> int | None:
        """What a container ended with; None if it runs."""
        shown = docker("inspect", "--format", "{{ .State.Running }} {{ .State.ExitCode }}", f"{NAME}{key}")
        if shown.returncode:
            return REMOVED  # by somebody else
        runs, code = shown.stdout.split()
        return None if runs == "true" else int(code)

    def _remove(self, key: str) -> None:
        docker("rm", "--force", f"{NAME}{key}")
        shutil.rmtree(WORK / key, ignore_errors=True)
        self._running.discard(key)


def docker(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command of Docker's."""
    return subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False)


def log_of(key: str) -> list[str]:
    """What a container printed, line by line."""
    shown = docker("logs", f"{NAME}{key}")
    return (shown.stdout + shown.stderr).splitlines()


def main() -> None:
    """Entry point, as the unit starts it."""
    config = yaml.safe_load(Path("/etc/determined/agent.yaml").read_text(encoding="utf-8"))
    try:
        agent = Agent(config)
        agent.exchange()
    except OSError as error:
        sys.exit(f"the master can't be reached, and there is no retry: {error}")
    lost = 0
    while True:
        time.sleep(0.5)
        try:
            agent.exchange()
            lost = 0
        except OSError as error:
            lost += 1
            if lost >= TRIES:
                sys.exit(f"the master is gone: {error}")
            time.sleep(1)


if __name__ == "__main__":
    main()
