"""The image in the workers' engines."""

from __future__ import annotations

import ast
import functools
import json
from typing import Any

import pytest
from testinfra.host import Host

from tests.nodes import cluster
from tests.nodes.facts import usable_cores
from tests.nodes.test_environment import digest

pytestmark = [pytest.mark.on("workers"), pytest.mark.role("image")]

CORES = "import os; print(sorted(os.sched_getaffinity(0)))"
LOOK = """
import json, os, subprocess, sys
run = lambda *command: subprocess.run(command, stdout=subprocess.PIPE, text=True).stdout
print(json.dumps({
    "content": run("python3", "/content", sys.argv[1]).strip(),
    "cores": sorted(os.sched_getaffinity(0)),
    "training": run("find", "/", "-xdev", "-path", "*training/loop.py").split(),
    "uid": os.getuid(),
}))
"""


@functools.cache
def image(name: str) -> str:
    """The image that a worker was told to run."""
    return str(cluster.node(name).check_output("cat /etc/trainbed/image"))


@cluster.question("workers")
def seen_inside(name: str) -> dict[str, Any]:
    """What a process inside the image sees."""
    said = cluster.node(name).check_output(
        "docker run --rm --network host --volume /opt/trainbed/environment-content:/content:ro "
        "%s python3 -c %s %s",
        image(name),
        LOOK,
        cluster.variables(name)["environment_path"],
    )
    return dict(json.loads(said))


def test_has_the_image_by_the_digest_that_all_workers_have(node: Host, name: str) -> None:
    assert "@sha256:" in image(name)
    assert {image(other) for other in cluster.groups()["workers"]} == {image(name)}
    found = node.check_output("docker image inspect --format '{{.Id}}' %s", image(name))
    assert found.startswith("sha256:")


@cluster.asks(seen_inside)
def test_the_image_holds_no_training_code_and_has_the_training_user(name: str) -> None:
    seen = seen_inside(name)
    assert seen["training"] == []
    assert seen["uid"] == cluster.variables(name)["trainbed_uid"]


@cluster.asks(seen_inside)
def test_the_image_holds_the_same_environment(name: str) -> None:
    assert seen_inside(name)["content"] == digest(name)


@cluster.asks(seen_inside)
def test_containers_and_units_use_the_nodes_cores_and_no_other(node: Host, name: str) -> None:
    unit = node.check_output("systemd-run --quiet --wait --pipe --collect /usr/bin/python3 -c %s", CORES)
    assert seen_inside(name)["cores"] == ast.literal_eval(unit) == usable_cores(name)
