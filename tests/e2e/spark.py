"""What Spark's master says of its workers."""

from __future__ import annotations

import json
from typing import Any

from tests.e2e.testbeds import Testbed


def living_workers(testbed: Testbed) -> list[dict[str, Any]]:
    """The workers that it would give a run to, as its page has them."""
    page = f"curl --silent --noproxy '*' http://{testbed.prefix}.10:7080/json/"
    workers = json.loads(testbed.node("master", page).output)["workers"]
    return [worker for worker in workers if worker["state"] == "ALIVE"]
