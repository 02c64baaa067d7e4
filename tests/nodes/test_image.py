"""The image, as the workers' engines have it."""

from __future__ import annotations

import ast

import pytest
from testinfra.host import Host

from tests.nodes import cluster
from tests.nodes.facts import usable_cores
from tests.nodes.test_environment import content


@pytest.mark.on("workers")
@pytest.mark.usefixtures("ddp")
def test_has_the_image_by_the_digest_that_all_workers_have(node: Host) -> None:
    image = node.check_output("cat /etc/trainbed/image")
    assert "@sha256:" in image
    others = {
        cluster.node(other).check_output("cat /etc/trainbed/image") for other in cluster.groups()["workers"]
    }
    assert others == {image}
    assert node.check_output("docker image inspect --format '{{.Id}}' %s", image).startswith("sha256:")


@pytest.mark.on("workers")
@pytest.mark.usefixtures("ddp")
def test_the_image_holds_no_training_code_and_has_the_training_user(node: Host, name: str) -> None:
    image = node.check_output("cat /etc/trainbed/image")
    found = node.check_output(
        "docker run --rm %s sh -c 'id -u; find / -xdev -path \"*training/loop.py\" 2> /dev/null; true'",
        image,
    )
    assert found.split() == [str(cluster.variables(name)["trainbed_uid"])]


@pytest.mark.on("workers")
@pytest.mark.usefixtures("ddp")
def test_the_image_holds_the_same_environment(node: Host, name: str) -> None:
    path = cluster.variables(name)["environment_path"]
    image = node.check_output("cat /etc/trainbed/image")
    inside = node.check_output(
        "docker run --rm --volume /opt/trainbed/environment-content:/content:ro %s python3 /content %s",
        image,
        path,
    )
    assert inside == content(node, path)


@pytest.mark.on("workers")
@pytest.mark.usefixtures("ddp")
def test_containers_and_units_use_the_nodes_cores_and_no_other(node: Host) -> None:
    program = "import os; print(sorted(os.sched_getaffinity(0)))"
    image = node.check_output("cat /etc/trainbed/image")
    container = node.check_output("docker run --rm --network host %s python3 -c %s", image, program)
    unit = node.check_output("systemd-run --quiet --wait --pipe --collect /usr/bin/python3 -c %s", program)
    assert ast.literal_eval(container) == ast.literal_eval(unit) == usable_cores(node)
