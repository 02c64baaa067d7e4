"""Determined taken out with and without its data, and installed again; its passwords set anew.

On test_loop.py's testbed.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator

import pytest

from experiments.cluster.declarations import short_name
from tests.e2e.matrices import NODES, nothing_runs, records, small
from tests.e2e.testbeds import Done, Testbed, wait_for
from tests.stacks import declared
from tests.standins import given

pytestmark = [pytest.mark.wide, pytest.mark.usefixtures("left_as_it_was")]

SECRETS = "/etc/trainbed/determined"
DET = f"DET_USER=%s DET_PASS=$(cat {SECRETS}/%s-password) det"
ADMIN, ORDINARY = DET % ("admin", "admin"), DET % ("trainbed", "user")
PSQL = "runuser --user postgres -- psql --quiet --tuples-only --no-align"
PERSON = "ada"
RESET = "ARGS=-e determined_reset_password=true"
DUMPS = "/var/backups/trainbed"
BACKUP = "/var/tmp/backup.dump"
CHECKPOINTS = "/srv/trainbed/shared/determined"
STORE = "/srv/trainbed/artifacts/determined"
#: Declared by the stack, but other stacks have it, too.
SHARED = {"/etc/trainbed/image"}
CONTAINERS = "docker ps --all --quiet --filter label=ai.determined.container.type=task-container"


@pytest.fixture(scope="module")
def left_as_it_was(provisioned: Testbed) -> Iterator[None]:
    """However these tests end, the testbed has every stack again."""
    yield
    provisioned.make("provision", packages_of(provisioned), RESET)


def packages_of(testbed: Testbed) -> str:
    """`make provision`'s argument for the packages that the testbed was provisioned with."""
    return f"determined_packages={given.prepared(testbed.root / 'packages')}"


def on_one_line(done: Done) -> str:
    """What a command said; each line break is a space."""
    return re.sub(r"\s+", " ", done.output)


def experiments(testbed: Testbed) -> list[tuple[str, str]]:
    """Name and state of all experiments, oldest first."""
    table = testbed.node("master", f"{ORDINARY} experiment list --all --csv").output
    found = sorted(csv.DictReader(table.splitlines()), key=lambda each: int(each["ID"]))
    return [(each["Name"], each["State"]) for each in found]


def users(testbed: Testbed) -> set[str]:
    """Names of Determined's users."""
    _head, _line, *rows = testbed.node("master", f"{ADMIN} user list").output.splitlines()
    return {row.split("|")[1].strip() for row in rows}


def trained(testbed: Testbed, name: str) -> None:
    """Run a small matrix on Determined alone."""
    testbed.make("matrix", f"MATRIX={small(testbed, name, stacks='determined', epochs=1)}")
    assert {record["status"] for record in records(testbed, name)} == {"ok"}


def uninstall(testbed: Testbed, *arguments: str) -> Done:
    """Take Determined out."""
    return testbed.make("uninstall", "STACK=determined", *arguments)


def left(testbed: Testbed, node: str) -> set[str]:
    """Packages, files and units that the stack declares for a node, and that are there."""
    release = testbed.node(node, ". /etc/os-release && echo $NAME $VERSION_ID").output
    group = "master" if node == "master" else "workers"
    wanted = declared()["determined"].groups[group].of_distribution(short_name(release))
    asked = [f"dpkg-query --show {each} > /dev/null 2>&1 && echo {each}" for each in wanted.packages]
    asked += [f"test -e {each} && echo {each}" for each in wanted.files if each not in SHARED]
    asked += [f"systemctl cat {each} > /dev/null 2>&1 && echo {each}" for each in wanted.services]
    return set(testbed.node(node, "; ".join([*asked, "true"])).output.split())


def test_taken_out_with_its_data_kept(testbed: Testbed) -> None:
    trained(testbed, "setup-before")
    testbed.node("master", f"{ADMIN} user create {PERSON} --password Tb1person")
    testbed.node("master", "systemctl start trainbed-dump.service")
    kept = experiments(testbed)
    assert kept
    secrets = testbed.node("master", f"sha256sum {SECRETS}/*-password").output

    would = testbed.make("uninstall", "STACK=determined", "ARGS=--check")
    assert "Determined would be taken out of the cluster" in on_one_line(would)
    assert experiments(testbed) == kept

    said = on_one_line(uninstall(testbed))

    assert "Kept on master: PostgreSQL with the database determined" in said
    assert "The inventory still has determined in stacks_optional: take it out there" in said
    for node in ("worker1", "worker2"):
        assert left(testbed, node) == set()
        assert testbed.node(node, CONTAINERS).output.split() == []
        testbed.node(node, f"test ! -e {SECRETS} && test ! -e /etc/determined")
    stays = left(testbed, "master")
    assert {f"{SECRETS}/admin-password", "/etc/trainbed/postgresql/password", "postgresql"} <= stays
    assert not [each for each in stays if "determined-" in each or each.endswith((".json", "/det"))]
    assert testbed.node("master", f"sha256sum {SECRETS}/*-password").output == secrets
    testbed.node("master", f"ls {DUMPS}/determined-*.dump && test -d {CHECKPOINTS}")
    wait_for("nothing runs", lambda: nothing_runs(testbed), 30)
    testbed.node("master", "test ! -e /var/lib/trainbed/lock")

    assert uninstall(testbed).changed() == set()

    matrix = small(testbed, "setup-without", stacks="determined", epochs=1)
    planned = re.sub(r"[\s│|]+", " ", testbed.make("plan", f"MATRIX={matrix}", check=False).output)
    assert "It was taken out of the cluster (make uninstall)" in planned
    assert "determined: It was taken out of the cluster" in on_one_line(testbed.make("status"))
    testbed.make("verify")

    # The store still has the packages.
    testbed.make("provision")
    assert experiments(testbed) == kept
    assert PERSON in users(testbed)
    assert testbed.make("provision").changed() == set()
    testbed.make("verify")


def test_a_password_that_was_lost_is_refused_and_then_set_anew(testbed: Testbed) -> None:
    kept, people = experiments(testbed), users(testbed)
    uninstall(testbed)
    testbed.node("master", f"rm {SECRETS}/*-password")

    refused = testbed.make("provision", check=False)

    assert refused.code != 0
    said = on_one_line(refused)
    assert "Determined's user admin has another password than the one in " in said
    assert "password in the database: make provision ARGS='-e determined_reset_password=true'." in said

    done = testbed.make("provision", RESET)

    assert "The password of Determined's user admin was set anew in the database" in on_one_line(done)
    assert experiments(testbed) == kept and users(testbed) == people
    extensions = f"{PSQL} --dbname=determined --command='SELECT extname FROM pg_extension'"
    assert testbed.node("master", extensions).output.split() == ["plpgsql"]
    # With the right password the variable does nothing.
    again = testbed.make("provision", RESET)
    assert again.changed() == set() and "set anew" not in again.output
    trained(testbed, "setup-reset")
    assert len(experiments(testbed)) > len(kept)


def test_taken_out_with_its_data_removed(testbed: Testbed) -> None:
    # Others' files and databases are not its data.
    testbed.node("master", f"find {DUMPS} -type f -not -name 'determined-*.dump' -delete")
    testbed.node("master", "systemctl start trainbed-dump.service")
    testbed.node("master", f"cp $(ls {DUMPS}/determined-*.dump | tail -1) {BACKUP}")
    before, people = experiments(testbed), users(testbed)
    said = on_one_line(uninstall(testbed, "DATA=remove"))
    assert "Determined is taken out of the cluster, with its database, dumps, passwords" in said
    for node in NODES:
        assert left(testbed, node) == set(), node
        testbed.node(node, f"test ! -e {SECRETS} && test ! -e /etc/determined")
    gone = (
        DUMPS,
        CHECKPOINTS,
        STORE,
        "/etc/trainbed/postgresql",
        "/etc/postgresql",
        "/var/lib/postgresql/15",
    )
    for path in gone:
        testbed.node("master", f"test ! -e {path}")
    assert testbed.node("master", "ss --listening --tcp --numeric | grep -c :5432", check=False).code == 1
    assert uninstall(testbed, "DATA=remove").changed() == set()
    wait_for("nothing runs", lambda: nothing_runs(testbed), 30)
    # Other stacks go on.
    testbed.make("matrix", f"MATRIX={small(testbed, 'setup-others', stacks='ddp', epochs=1)}")
    assert {record["status"] for record in records(testbed, "setup-others")} == {"ok"}

    # Without packages it stays out, with the reason; with them it is a fresh one.
    assert "determined is left out: The packages of Determined are not in the store" in on_one_line(
        testbed.make("provision")
    )
    testbed.make("provision", packages_of(testbed))
    assert experiments(testbed) == []
    assert users(testbed) == {"admin", "determined", "trainbed"}
    trained(testbed, "setup-fresh")
    testbed.make("verify")

    # The backup goes into the new master, whose passwords are others.
    testbed.node("master", f"chown postgres {BACKUP}")
    testbed.playbook("restore", "-e", f"postgresql_restore_file={BACKUP}")
    testbed.make("provision", RESET)
    assert experiments(testbed) == before and users(testbed) == people
    trained(testbed, "setup-restored")


def test_a_server_that_others_use_stays(testbed: Testbed) -> None:
    for sql in ("CREATE ROLE lab", "CREATE DATABASE lab OWNER lab"):
        testbed.node("master", f"{PSQL} --dbname=postgres --command='{sql}'")
    databases = (
        f"{PSQL} --dbname=postgres --command='SELECT datname FROM pg_database WHERE NOT datistemplate'"
    )
    try:
        said = on_one_line(uninstall(testbed, "DATA=remove"))
        assert "PostgreSQL stays on master: its cluster 15 main also has lab." in said
        assert sorted(testbed.node("master", databases).output.split()) == ["lab", "postgres"]
        roles = f"{PSQL} --dbname=postgres --command='SELECT rolname FROM pg_roles WHERE rolcanlogin'"
        assert testbed.node("master", roles).output.split() == ["postgres"]
        assert uninstall(testbed, "DATA=remove").changed() == set()
        testbed.make("provision", packages_of(testbed))
        assert experiments(testbed) == []
    finally:
        for sql in ("DROP DATABASE lab", "DROP ROLE lab"):
            testbed.node("master", f"{PSQL} --dbname=postgres --command='{sql}'")
