"""Determined's configurations are checked against the keys it knows before they are installed."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from tests.unit.roles.loading import ROOT, load

unknown_keys = load("roles/determined/filter_plugins/determined.py").unknown_keys


def keys(kind: str) -> Any:
    """The list of keys, with its self-references resolved as Ansible does."""
    content = yaml.safe_load((ROOT / "roles/determined/vars/keys.yml").read_text(encoding="utf-8"))

    def worked_out(value: Any) -> Any:
        if isinstance(value, str) and value.startswith("{{"):
            return worked_out(content[value.strip("{} ")])
        if isinstance(value, dict):
            return {key: worked_out(each) for key, each in value.items()}
        return [worked_out(each) for each in value] if isinstance(value, list) else value

    return worked_out(content["determined_keys"])[kind]


def test_every_key_of_a_real_master_is_known() -> None:
    path = ROOT / "tests/standins/determined/answers/master-config.json"
    recorded = json.loads(path.read_text(encoding="utf-8"))["body"]["config"]
    assert len(recorded) > 25
    assert unknown_keys(recorded, keys("master")) == []


@pytest.mark.parametrize(
    ("kind", "config", "says"),
    [
        ("master", {"ports": 8080}, "Determined 0.38.1 knows no key ports (did you mean port?)."),
        (
            "master",
            {"db": {"passwort": "x"}},
            "Determined 0.38.1 knows no key db.passwort (did you mean password?).",
        ),
        # Determined itself would ignore these two.
        (
            "master",
            {"resource_pools": [{"pool_name": "default"}, {"agent_reconnect_time": "25s"}]},
            "Determined 0.38.1 knows no key resource_pools[1].agent_reconnect_time (did you mean agent_re",
        ),
        (
            "master",
            {"task_container_defaults": {"shm_size": 1}},
            "Determined 0.38.1 knows no key task_container_defaults.shm_size (did you mean shm_size_bytes?)",
        ),
        # Old documentation shows these.
        ("agent", {"master_host": "a", "label": "x"}, "Determined 0.38.1 knows no key label."),
        ("agent", {"id": "x"}, "Determined 0.38.1 knows no key id."),
        ("agent", {"security": True}, "security holds True, but should hold keys: tls."),
        ("agent", {"master_port": [8080]}, "master_port should be a plain value."),
        ("master", {"feature_switches": "x"}, "feature_switches should be a list."),
    ],
)
def test_what_is_wrong_is_said_with_its_place(kind: str, config: dict[str, Any], says: str) -> None:
    (fault,) = unknown_keys(config, keys(kind))
    assert fault.startswith(says)


def test_what_is_right_is_not_complained_about() -> None:
    agent = {"master_host": "a", "master_port": 8080, "security": {"tls": {"enabled": False}}, "hooks": None}
    assert unknown_keys(agent, keys("agent")) == []
