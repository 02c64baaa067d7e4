"""PostgreSQL, and Determined's master and agents."""

from __future__ import annotations

import json

import pytest
import yaml
from testinfra.host import Host

from tests.nodes import cluster
from tests.nodes.facts import is_true

pytestmark = pytest.mark.stack("determined")

SECRETS = "/etc/trainbed/determined"


def scheme_and_port(name: str) -> tuple[str, int]:
    """Scheme and port of the master's API."""
    tls = is_true(cluster.variables(name).get("determined_tls"))
    return "https" if tls else "http", cluster.port("determined_port", 8443 if tls else 8080)


@pytest.mark.on("workers")
def test_an_agent_is_never_given_up(node: Host) -> None:
    shown = node.check_output(
        "systemctl show determined-agent --property=StartLimitIntervalUSec,Restart,RestartUSec"
    )
    assert set(shown.splitlines()) == {"StartLimitIntervalUSec=0", "Restart=always", "RestartUSec=5s"}


@pytest.mark.on("master")
def test_the_database_asks_for_a_password_and_keeps_it_as_scram(node: Host) -> None:
    sql = "SELECT rolpassword FROM pg_authid WHERE rolname = 'determined'"
    kept = node.check_output(f'runuser --user postgres -- psql --tuples-only --no-align --command="{sql}"')
    assert kept.startswith("SCRAM-SHA-256$")
    refused = node.run(
        "PGPASSWORD=wrong psql --host=127.0.0.1 --username=determined --no-password --command='SELECT 1'"
    )
    assert refused.rc != 0 and "password authentication failed" in refused.stderr
    setting = node.check_output(
        "runuser --user postgres -- psql --tuples-only --no-align --command='SHOW max_connections'"
    )
    assert int(setting) >= 96


@pytest.mark.on("master")
def test_passwords_are_for_their_owners_only(node: Host) -> None:
    for path, user, group, mode in (
        ("/etc/trainbed/postgresql/password", "root", "root", 0o600),
        (f"{SECRETS}/admin-password", "root", "root", 0o600),
        (f"{SECRETS}/user-password", "root", "trainbed", 0o640),
        (f"{SECRETS}/user-token", "root", "trainbed", 0o660),
        ("/etc/determined/master.yaml", "root", "root", 0o600),
    ):
        file = node.file(path)
        assert (file.user, file.group, file.mode) == (user, group, mode), path


@pytest.mark.on("workers")
def test_an_agents_configuration_is_for_root_only(node: Host) -> None:
    file = node.file("/etc/determined/agent.yaml")
    assert (file.user, file.mode) == ("root", 0o600)


@pytest.mark.on("master")
def test_the_master_is_the_version_that_was_asked_for(node: Host, name: str) -> None:
    scheme, port = scheme_and_port(name)
    address = cluster.variables(name)["cluster_address"]
    trust = "--cacert /etc/determined/master.crt" if scheme == "https" else ""
    info = json.loads(
        node.check_output(f"curl --silent --noproxy '*' {trust} {scheme}://{address}:{port}/info")
    )
    assert info["version"] == "0.38.1"
    assert info["telemetry"]["enabled"] is False


@pytest.mark.on("master")
def test_nobody_gets_in_with_a_blank_password(node: Host, name: str) -> None:
    scheme, port = scheme_and_port(name)
    address = cluster.variables(name)["cluster_address"]
    trust = "--cacert /etc/determined/master.crt" if scheme == "https" else ""
    for user in ("admin", "determined", "trainbed"):
        login = json.dumps({"username": user, "password": "", "isHashed": True})
        code = node.check_output(
            f"curl --silent --noproxy '*' {trust} --output /dev/null --write-out '%{{http_code}}' "
            f"--data '{login}' {scheme}://{address}:{port}/api/v1/auth/login"
        )
        assert code == "401", user


@pytest.mark.on("master")
def test_det_is_ready_to_use_and_sees_every_slot(node: Host) -> None:
    found = node.check_output(
        f"DET_USER=trainbed DET_PASS=$(cat {SECRETS}/user-password) REQUESTS_CA_BUNDLE=/nowhere "
        "det slot list --json"
    )
    slots = {slot["agent_id"] for slot in json.loads(found)}
    assert slots == set(cluster.groups()["workers"])


@pytest.mark.on("workers")
def test_agents_look_for_the_master_by_its_address_on_the_network(node: Host) -> None:
    config = yaml.safe_load(node.check_output("cat /etc/determined/agent.yaml"))
    assert config["master_host"] == cluster.variables(cluster.master())["cluster_address"]


def test_checkpoints_have_the_same_place_everywhere(node: Host, name: str) -> None:
    path = node.file(f"{cluster.variables(name)['shared_storage_path']}/determined")
    assert path.is_directory and path.uid == cluster.variables(name)["trainbed_uid"]
