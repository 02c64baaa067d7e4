"""`python -m trainbed_machines VERB STATE …`: makes, starts and removes a testbed's machines."""

from __future__ import annotations

import argparse
import json
import secrets
import shutil
import subprocess
import sys
from pathlib import Path

from trainbed_machines import disks, image, kinds, network, processes, rough
from trainbed_machines.errors import MachinesError
from trainbed_machines.plan import (
    PASSWORDS,
    Plan,
    Request,
    made_for,
    read_plan,
    read_request,
    write_plan,
    write_whole,
)


def main() -> int:
    """Entry point; prints what changed, in lines that begin with `changed`."""
    parser = argparse.ArgumentParser(prog="trainbed_machines", description=__doc__)
    parser.add_argument("verb", choices=["up", "down", "start", "kill"])
    parser.add_argument("state", type=Path, help="directory of the testbed's state on this machine")
    parser.add_argument("--cache", type=Path, required=True, help="directory for what outlives the testbed")
    parser.add_argument("--node", help="only this one (start, kill)")
    parser.add_argument("--all", action="store_true", help="remove this testbed's caches, too (down)")
    given = parser.parse_args()
    try:
        if given.verb == "up":
            up(given.state, given.cache)
        elif given.verb == "down":
            down(given.state, given.cache, caches=given.all)
        else:
            one(given.verb, given.state, given.cache, given.node)
    except MachinesError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def up(state: Path, cache: Path) -> None:
    """Make what is missing, and start what is off."""
    request = read_request(state)
    network.check_owner(request)
    plan = planned(request, state, cache)
    base = cache / plan.base
    for node, each in plan.nodes.items():
        print(f"{node}: {rough.told(each)}")
    passwords = json.loads((state / PASSWORDS).read_text(encoding="utf-8"))
    disks.make_cache(cache_disk(request, cache))
    changed("this machine's vm.max_map_count", kinds.prepare_host(plan.kind))
    changed("networks", network.bring_up(request))
    for node, each in plan.nodes.items():
        if not (state / "machines" / node / "disk.img").exists():
            disks.make_disks(
                request, node, each, kind=plan.kind, base=base, state=state, password=passwords[node]
            )
            changed(f"disks of {node}", True)
    for node in plan.nodes:
        changed(f"{node} started", start(request, plan, node, state, cache))


def planned(request: Request, state: Path, cache: Path) -> Plan:
    """The plan that was made before, or a new one.

    Raises:
        MachinesError: the testbed was made otherwise than is asked for now.
    """
    plan = read_plan(state)
    if plan is None:
        base, made = image.base_system(request, cache, state / "image", print)
        changed("base system", made)
        kind = kinds.choose(request, base, state, print)
        plan = Plan(kind, request.seed, base.name, rough.draw(request))
        write_whole(
            state / PASSWORDS, json.dumps({node: secrets.token_urlsafe(18) for node in plan.nodes}) + "\n"
        )
        write_plan(state, plan, request)
    elif (before := places(made_for(state))) != (wanted := places(request)):
        raise MachinesError(
            f"The testbed {request.name} was made of {before}, and {wanted} is asked for now: run make "
            "testbed-down first, or choose another name with TESTBED."
        )
    elif request.kind not in ("auto", plan.kind):
        raise MachinesError(
            f"The testbed {request.name} was made with {plan.kind}: run make testbed-down first."
        )
    else:
        print(f"The machines run on {plan.kind}: {kinds.MEANS[plan.kind]}.")
    print(f"What is rough about them was drawn with the seed {plan.seed}:")
    return plan


def places(request: Request) -> str:
    """The machines and where they are, in words."""
    nodes = ", ".join(f"{node} at {address}" for node, address in request.addresses.items())
    return f"{nodes} (outside: {request.outside_prefix}.0/24)"


def down(state: Path, cache: Path, *, caches: bool) -> None:
    """Remove machines and networks, also those of a testbed that was only half made."""
    if not (state / "machines.json").exists():
        return
    request = made_for(state)
    for node in request.addresses:
        changed(f"{node} stopped", processes.kill(state / "machines" / node / "disk.img"))
    changed("networks", network.take_down(request))
    if (state / "machines").exists():
        shutil.rmtree(state / "machines")
        changed("disks", True)
    if caches:
        cache_disk(request, cache).unlink(missing_ok=True)


def one(verb: str, state: Path, cache: Path, node: str) -> None:
    """Start one machine, or cut its power.

    Raises:
        MachinesError: there is no such machine.
    """
    request, plan = read_request(state), read_plan(state)
    if plan is None or node not in plan.nodes:
        raise MachinesError(f"The testbed {request.name} has no machine {node}: run make testbed.")
    if verb == "kill":
        changed(f"{node} stopped", processes.kill(state / "machines" / node / "disk.img"))
    else:
        changed(f"{node} started", start(request, plan, node, state, cache))


def start(request: Request, plan: Plan, node: str, state: Path, cache: Path) -> bool:
    """Start a machine; False if it runs already."""
    folder = state / "machines" / node
    if processes.of(folder / "disk.img"):
        return False
    more = [folder / "var.img"] if plan.nodes[node].var_mb else []
    taps = [network.tap(request, node)]
    if node in request.masters:
        more.append(cache_disk(request, cache))
        taps.append(network.way_out(request))
    machine = kinds.Machine(
        name=f"{request.name}-{node}",
        disk=folder / "disk.img",
        more_disks=more,
        taps=taps,
        directories=request.directories if node in request.masters else [],
        cores=request.cores,
        memory_mb=request.memory_mb,
        folder=folder,
        base=cache / plan.base,
    )
    # What a killed user-mode kernel left says that it still runs.
    shutil.rmtree(folder / machine.name, ignore_errors=True)
    memory = kinds.room_for_memory(state / "machines" / "memory", request.memory_mb * len(request.addresses))
    # A machine that lost its power may have left a journal.
    for disk in [machine.disk, *more]:
        subprocess.run(["e2fsck", "-p", str(disk)], capture_output=True, check=False)
    processes.start(kinds.command(plan.kind, machine), folder / "console.log", memory)
    return True


def cache_disk(request: Request, cache: Path) -> Path:
    """The disk for what the master fetched and built, which outlives the testbed."""
    return cache / f"store-{request.name}.img"


def changed(what: str, whether: bool) -> None:
    """Report one thing that was done."""
    if whether:
        print(f"changed: {what}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
