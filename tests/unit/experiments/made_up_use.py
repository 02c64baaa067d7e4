"""Made-up resource use of ranks."""

from __future__ import annotations

from typing import Any

MACHINE = "2f027c7d-e7b2-448b-902b-45e136138f56"
NO_RAPL = "/sys/class/powercap shows no package of the processor, as in virtual machines and most containers."


def rank_use(**changes: dict[str, Any]) -> dict[str, Any]:
    """A rank's use over 40 s on a machine that reports no energy; `changes` update its parts."""
    mb = 2**20
    use: dict[str, dict[str, Any]] = {
        "cpu": {"user_s": 36.0, "system_s": 2.0, "voluntary_switches": 900, "involuntary_switches": 70}
        | {"by": "getrusage"},
        "waiting": {"waited_s": 1.5, "by": "schedstat"},
        "memory": {"peak_mb": 700.0, "by": "VmHWM"},
        "disk": {"read_bytes": 0, "written_bytes": 3 * mb, "by": "/proc/self/io"},
        "network": {
            "namespace": "net:[4026531840]",
            "interfaces": {
                "docker0": {"sent_bytes": 9 * mb, "received_bytes": 9 * mb},
                "eth0": {"sent_bytes": 500 * mb, "received_bytes": 250 * mb},
            },
            "by": "/proc/net/dev",
        },
        "way": {"interface": "eth0", "by": "MASTER_ADDR"},
        "machine": {"id": MACHINE, "processors": 2, "stolen_s": 4.0, "by": "/proc/stat"},
        "energy": {"cpu_j": None, "trouble": NO_RAPL, "by": "RAPL"},
    }
    return {"seconds": 40.0} | {
        name: {"trouble": None} | part | changes.get(name, {}) for name, part in use.items()
    }
