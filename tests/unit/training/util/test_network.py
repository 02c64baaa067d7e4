"""An interface is known by its address, whatever it is called."""

from __future__ import annotations

import pytest

from training.errors import LaunchError
from training.util.network import interface_of

INTERFACES = {"docker0": ["172.17.0.1"], "enp1s0": ["192.168.217.245", "fe80::1"], "lo": ["127.0.0.1"]}


def test_the_interface_is_known_by_its_address() -> None:
    assert interface_of("192.168.217.245", INTERFACES) == "enp1s0"
    with pytest.raises(LaunchError, match=r"No network interface of .* has the address 10\.0\.0\.1\."):
        interface_of("10.0.0.1", INTERFACES)
