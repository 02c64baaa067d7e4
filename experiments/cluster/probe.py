"""Prints how busy this machine is, as JSON; sent to every node before a run.

Standard library only: the node's own `python3 -` runs it from standard input, with the seconds to sample for
as its argument. `experiments.cluster.quiet` reads its output.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")  # of the kernel's clock per second


def processor_ticks() -> list[int]:
    """Ticks of all cores together: user, nice, system, idle, iowait, irq, softirq, steal."""
    with Path("/proc/stat").open(encoding="ascii") as file:
        return [int(word) for word in file.readline().split()[1:9]]


def process_ticks() -> dict[tuple[int, str], int]:
    """Ticks of every visible process except this one, by number and name."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError:  # it has exited meanwhile
            continue
        name, _, rest = text.partition("(")[2].rpartition(")")
        fields, number = rest.split(), int(path.parent.name)
        if number != os.getpid():
            found[number, name] = int(fields[11]) + int(fields[12])
    return found


def gpus() -> tuple[list[dict[str, float]], str | None]:
    """Use in percent and temperature in degrees Celsius of every GPU, or why they are unknown."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return [], None
    command = [program, "--query-gpu=utilization.gpu,temperature.gpu", "--format=csv,noheader,nounits"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
        rows = [[float(word) for word in line.split(",")] for line in said.splitlines() if line.strip()]
        return [{"percent": percent, "celsius": celsius} for percent, celsius in rows], None
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return [], f"nvidia-smi: {error}"


def main(seconds: float) -> None:
    """Sample for `seconds`, and print the result."""
    began, before, processes = time.monotonic(), processor_ticks(), process_ticks()
    time.sleep(seconds)
    after, later = processor_ticks(), process_ticks()
    passed = time.monotonic() - began
    spent = [new - old for new, old in zip(after, before)]  # noqa: B905 - also for Python before 3.10
    busiest = max(later, key=lambda key: later[key] - processes.get(key, later[key]), default=None)
    cores = later[busiest] - processes.get(busiest, later[busiest]) if busiest else 0
    devices, trouble = gpus()
    seen = {
        "busy_cores": round((spent[0] + spent[1] + spent[2] + spent[5] + spent[6]) / TICKS / passed, 3),
        "steal_percent": round(100 * spent[7] / max(1, sum(spent)), 2),
        "busiest": f"{busiest[1]} (process {busiest[0]})" if busiest and cores else None,
        "busiest_cores": round(cores / TICKS / passed, 3),
        "gpus": devices,
        "gpu_trouble": trouble,
    }
    print(json.dumps(seen))


if __name__ == "__main__":
    main(float(sys.argv[1]))
