"""Ranks communicate over the interface with the inventory's address, whatever it is called."""

from __future__ import annotations

import os

import pytest

from training.distributed import network


def test_what_leads_to_the_meeting_place_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "NCCL_IB_DISABLE"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "29500")
    assert network.choose_interface() == "=lo"
    assert os.environ["GLOO_SOCKET_IFNAME"] == "lo"
    assert os.environ["NCCL_IB_DISABLE"] == "1"
    # A setting of the user's is kept, and the others are made as usual.
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "=ib0")
    monkeypatch.delenv("GLOO_SOCKET_IFNAME")
    assert network.choose_interface() == "=ib0"
    assert os.environ["GLOO_SOCKET_IFNAME"] == "lo"
    monkeypatch.delenv("NCCL_SOCKET_IFNAME")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "ib0")
    monkeypatch.setenv("NCCL_IB_DISABLE", "0")
    assert network.choose_interface() == "=lo"
    assert (os.environ["GLOO_SOCKET_IFNAME"], os.environ["NCCL_IB_DISABLE"]) == ("ib0", "0")
