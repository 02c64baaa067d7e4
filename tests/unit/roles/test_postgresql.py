"""A PostgreSQL cluster that was there before, as an upgrade of the distribution leaves one behind."""

from __future__ import annotations

import pytest

from tests.unit.roles.loading import value_of

OWN = "17 main 5432 online postgres /var/lib/postgresql/17/main /var/log/postgresql/postgresql-17-main.log"


@pytest.mark.parametrize(
    ("clusters", "in_the_way"),
    [
        ([], []),
        ([OWN], []),
        ([OWN.replace("17", "15")], ["15 main"]),
        ([OWN.replace("main", "lab")], ["17 lab"]),
        # After pg_upgradecluster, the old cluster has another port.
        ([OWN.replace("17", "15").replace("5432", "5433"), OWN], []),
        # As apt leaves the new one before it.
        ([OWN.replace("17", "15"), OWN.replace("5432", "5433")], ["15 main"]),
    ],
)
def test_only_another_cluster_at_our_port_is_in_the_way(clusters: list[str], in_the_way: list[str]) -> None:
    found = value_of(
        "postgresql_in_the_way",
        "roles/postgresql/vars/main.yml",
        postgresql_clusters={"stdout_lines": clusters},
        postgresql_port=5432,
        postgresql_version="17",
    )
    assert found == in_the_way
