"""What the master exports over NFS and to whom, and which mounts are let go of."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.roles.loading import value_of

VARS = "roles/shared_storage/vars/main.yml"
PATHS = {
    "shared_storage_path": "/srv/trainbed/shared",
    "shared_storage_export": "/srv/trainbed/exported",
    "shared_storage_kind": "nfs",
    "shared_storage_uid": 6100,
}
OPTIONS = "(rw,async,no_subtree_check,root_squash)"


def exports(addresses: dict[str, str], masters: list[str]) -> dict[str, Any]:
    """The file of exports where the inventory has these nodes."""
    entries = value_of(
        "shared_storage_exported",
        VARS,
        groups={"cluster": list(addresses), "master": masters},
        hostvars={node: {"cluster_address": address} for node, address in addresses.items()},
        inventory_hostname="m",
        **PATHS,
    )
    (found,) = [entry for entry in entries if entry["path"].endswith(".exports")]
    return dict(found)


@pytest.mark.parametrize(
    ("addresses", "clients"),
    [
        ({"m": "10.0.0.1", "w1": "10.0.0.2", "w2": "10.0.0.3"}, ["10.0.0.2", "10.0.0.3"]),
        ({"m": "10.0.0.1", "w1": "10.0.0.2"}, ["10.0.0.2"]),  # one has left
        ({"m": "10.0.0.1", "w1": "10.0.0.9"}, ["10.0.0.9"]),  # one has moved
        ({"m": "10.0.0.1"}, []),  # a master that is the only worker
    ],
)
def test_only_the_inventorys_other_nodes_may_mount(addresses: dict[str, str], clients: list[str]) -> None:
    found = exports(addresses, ["m"])
    assert found["state"] == ("file" if clients else "absent")
    if clients:
        line = " ".join(["/srv/trainbed/exported", *(f"{client}{OPTIONS}" for client in clients)])
        assert found["content"] == f"{line}\n"


@pytest.mark.parametrize(
    ("node", "mounts", "stale"),
    [
        ("w1", ["/dev/vda1 / ext4 rw 0 0"], False),
        ("w1", ["10.0.0.1:/srv/trainbed/exported /srv/trainbed/shared nfs4 rw 0 0"], False),
        ("w1", ["10.0.0.8:/srv/trainbed/exported /srv/trainbed/shared nfs4 rw 0 0"], True),
        ("w1", ["10.0.0.8:/srv/trainbed/exported /srv/other nfs4 rw 0 0"], False),  # not ours
        # A master's own is a bind mount, of whatever device.
        ("m", ["/dev/vda1 /srv/trainbed/shared ext4 rw,nosuid,nodev 0 0"], False),
    ],
)
def test_a_mount_from_another_address_of_the_master_is_stale(
    node: str, mounts: list[str], stale: bool
) -> None:
    found = value_of(
        "shared_storage_stale",
        VARS,
        groups={"cluster": ["m", "w1"], "master": ["m"]},
        inventory_hostname=node,
        shared_storage_server="10.0.0.1",
        shared_storage_mounts={"stdout_lines": mounts},
        **PATHS,
    )
    assert found is stale
