"""Marks the slow ones of the tests without nodes; `make unit` leaves them out."""

from __future__ import annotations

import pytest

#: Fixtures that start ranks, processes to measure, a browser, or the command that runs a matrix.
STARTERS = {"ask", "browser", "ranks", "whole", "workplace"}
#: Modules that start ansible-playbook, a database, the matrix's command or torch's ranks themselves, or query
#: mirrors.
SLOW_MODULES = {
    "test_benchmarks",
    "test_loop",
    "test_broken_stacks",
    "test_check_gpus",
    "test_cluster_facts",
    "test_data_sets",
    "test_dataset",
    "test_determined_reset",
    "test_conformance",
    "test_export",
    "test_locks",
    "test_common_variables",
    "test_kills",
    "test_nvidia_packages",
    "test_preflight",
    "test_provisioning_record",
    "test_runs",
    "test_script",
    "test_status_playbook",
    "test_testbed_checks",
    "test_uninstall",
    "test_watch",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the slow tests."""
    for item in items:
        if STARTERS & set(getattr(item, "fixturenames", ())) or item.path.stem in SLOW_MODULES:
            item.add_marker(pytest.mark.slow)
