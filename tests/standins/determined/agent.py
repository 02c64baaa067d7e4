#!/opt/trainbed/env/current/bin/python
"""A stand-in for Determined's agent 0.38.1: offers slots to the stand-in master, and runs what it is given.

Like the real agent, it does not retry its first connection, gives up a lost connection after five tries, and
starts containers as the training user, with the experiment's image, bind mounts and environment. Unlike it,
this one starts torchrun instead of Determined's own launcher, which needs a real master: the Core API then
works as it does outside a cluster.
"""

from __future__ import annotations

import base64
import json
import shlex
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
USER = "6100:6100"
LABEL = "ai.determined.container.type=task-container"


class Agent:
    """One agent and its containers."""

    def __init__(self, config: dict[str, Any]) -> None:
        """Read the settings, and this node's address from a first connection."""
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
        self._running: set[int] = set()
        self._ended: dict[int, dict[str, Any]] = {}

    def exchange(self) -> None:
        """Report to the master, and do what it asks for."""
        body = {"id": self._id, "slots": self._slots, "address": self._address, "ended": self._ended}
        request = urllib.request.Request(
            self._url, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with self._opener.open(request, timeout=10) as answered:
            wanted = {int(number): each for number, each in json.load(answered)["run"].items()}
        self._ended = {}
        for number, each in wanted.items():
            if number not in self._running:
                self._start(number, each)
        for number in sorted(self._running):
            if number not in wanted:
                self._remove(number)
            elif (status := self._status(number)) is not None:
                log = subprocess.run(
                    ["docker", "logs", name(number)], capture_output=True, text=True, check=False
                )
                lines = (log.stdout + log.stderr).splitlines()
                self._ended[number] = {"status": status, "log": lines}
                self._remove(number)

    def _start(self, number: int, wanted: dict[str, Any]) -> None:
        config = wanted["config"]
        work = Path(f"/var/lib/determined-standin/{number}")
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
        torchrun = (
            f"torchrun --nnodes={len(wanted['nodes'])} --nproc-per-node={wanted['slots']} "
            f"--node-rank={wanted['rank']} --master-addr={wanted['nodes'][0]} "
            f"--master-port={29400 + number % 1000}"
        )
        entrypoint = config["entrypoint"].replace(LAUNCHER, torchrun)
        subprocess.run(
            [
                "docker",
                "run",
                "--detach",
                "--name",
                name(number),
                "--label",
                LABEL,
                "--network",
                "host",
            ]
            + ["--user", USER, "--workdir", "/run/determined/workdir"]
            + [
                word
                for mount in [f"{work}:/run/determined/workdir:ro", *mounts]
                for word in ("--volume", mount)
            ]
            + [word for each in config["environment"]["environment_variables"] for word in ("--env", each)]
            + [config["environment"]["image"], *shlex.split(entrypoint)],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        self._running.add(number)

    def _status(self, number: int) -> int | None:
        shown = subprocess.run(
            ["docker", "inspect", "--format", "{{ .State.Running }} {{ .State.ExitCode }}", name(number)],
            capture_output=True,
            text=True,
            check=False,
        )
        if shown.returncode:
            return 137  # somebody removed it
        runs, code = shown.stdout.split()
        return None if runs == "true" else int(code)

    def _remove(self, number: int) -> None:
        subprocess.run(["docker", "rm", "--force", name(number)], check=True, stdout=subprocess.DEVNULL)
        self._running.discard(number)


def name(number: int) -> str:
    """The name of an experiment's container."""
    return f"determined-standin-{number}"


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
