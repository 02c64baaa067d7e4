"""Spark's earlier release: its environment beside the cluster's."""

from __future__ import annotations

import pytest
from testinfra.backend.base import CommandResult
from testinfra.host import Host

from tests.nodes import cluster

pytestmark = pytest.mark.stack("spark35")

ENVIRONMENT = "/opt/trainbed/env/spark35"


@cluster.question("cluster")
def content(name: str) -> CommandResult:
    """Digest of the environment's content, with each file read and compared with what was installed."""
    return cluster.node(name).run("/opt/trainbed/environment-content %s --verify", ENVIRONMENT)


@cluster.asks(content)
def test_spark35_has_the_masters_environment_as_it_was_installed(name: str) -> None:
    assert content(name).rc == 0, content(name)
    assert content(name).stdout == content(cluster.master()).stdout


def test_spark35_has_other_versions_of_spark_and_what_it_needs_alone(node: Host, name: str) -> None:
    # With a slash: it is a link.
    paths = (f"{ENVIRONMENT}/", cluster.variables(name)["environment_path"] + "/")
    look = "find %s -maxdepth 4 -name '*.dist-info' -exec basename {} ';'"
    listed = [node.check_output(look, path) for path in paths]
    own, first = (set(each.splitlines()) for each in listed)
    assert own - first == {"pyspark-3.5.1.dist-info", "py4j-0.10.9.7.dist-info"}
    assert len(own) == len(first)
