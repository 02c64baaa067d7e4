"""`status`: the cluster on one screen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from experiments.campaign.campaign import open_campaign
from experiments.campaign.estimates import Estimates
from experiments.campaign.running_note import read_notes
from experiments.cluster.declarations import read_declaration
from experiments.cluster.progress import duration
from experiments.cluster.provisioning import newest_of
from experiments.cluster.stack_folders import role_of
from experiments.cluster.status import ClusterStatus, Described, NodeStatus, State, explain_clock, shared
from experiments.console.observe import Observer
from experiments.console.watch_view import counts, headline, remaining_text
from experiments.util.errors import UserError
from experiments.util.screen import Screen

COLUMNS: Final = ("node", "role", "state", "cores", "memory", "GPUs", "load", "free disk", "clock")
ROLES: Final = {"master": "master", "workers": "worker"}  # by group
NONE: Final = "-"
LABEL_WIDTH: Final = 12  # characters
DIGITS: Final = 12  # of a digest


def show_status(screen: Screen, status: ClusterStatus, results: Path) -> None:
    """Shows the nodes as a table, what they have in common in lines, and what is wrong in red."""
    up = sum(node.state is not None for node in status.nodes.values())
    title = f"{status.inventory}: {up} of {len(status.nodes)} nodes up"
    screen.table(title, COLUMNS, [_row(name, node, status.answered) for name, node in status.nodes.items()])
    for text in _troubles(status):
        screen.line(text, "red")
    for label, text in [*_common(status), *_of_controller(status, results)]:
        screen.line(f"{label:{LABEL_WIDTH}} {text}")


def _row(name: str, node: NodeStatus, answered: float) -> list[str]:
    role = "+".join(word for group, word in ROLES.items() if group in node.groups)
    state, described = node.state, node.state.described if node.state else None
    if state is None:
        return [name, role, "down", *[NONE] * (len(COLUMNS) - 3)]
    return [
        name,
        role,
        f"up {_period(state.up_s)}",
        str(described.cores) if described else NONE,
        _gigabytes(described.memory_mb) if described else NONE,
        _gpus(state),
        f"{state.load:.1f}",
        _disks(state),
        explain_clock(state, answered),
    ]


def _gpus(state: State) -> str:
    if state.gpus is None:
        return "no answer"
    names = [gpu.name for gpu in state.gpus.gpus if not gpu.pseudo]
    found = [f"{names.count(name)} {name}" for name in dict.fromkeys(names)]
    declared = sum(gpu.pseudo for gpu in state.gpus.gpus)
    found += [f"{declared} declared"] if declared else []
    return ", ".join(found) or NONE


def _disks(state: State) -> str:
    # In containers, several mounts are of one file system.
    found = {(disk.size_mb, disk.free_mb): disk for disk in reversed(state.disks)}
    return ", ".join(f"{disk.mount} {_gigabytes(disk.free_mb)}" for disk in reversed(found.values()))


def _gigabytes(megabytes: int) -> str:
    return f"{megabytes / 1024:.0f} GB"


def _period(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def _troubles(status: ClusterStatus) -> Iterator[str]:
    for name, node in status.nodes.items():
        state = node.state
        if state is None:
            yield f"{name} is down: {node.trouble or 'it was not asked'}"
            continue
        if state.described is None:
            yield f"{name} did not say in time what is installed on it: busy, or its Docker engine hangs"
        if state.failed_units:
            units = ", ".join(state.failed_units)
            yield f"{name} has units that failed: {units} (systemctl status there says why)"
        if state.gpus is not None and state.gpus.trouble and status.device == "cuda":
            yield f"{name}: {state.gpus.trouble}"


def _common(status: ClusterStatus) -> Iterator[tuple[str, str]]:
    """What the nodes say, each thing once where it is the same on all of them."""
    yield "lock", _lock(status)
    yield "stacks", _stacks(status)
    there = {
        name: node.state.described
        for name, node in status.nodes.items()
        if node.state is not None and node.state.described is not None
    }
    if not there:
        return
    workers = {name: each for name, each in there.items() if "workers" in status.nodes[name].groups}

    def said(of: dict[str, Described], what: Callable[[Described], str]) -> str:
        return shared({name: what(each) for name, each in of.items()})

    yield "environment", said(there, _environment)
    if workers:
        yield "image", said(workers, lambda each: each.image or "none")
    yield "Docker", said(there, lambda each: each.docker or "none")
    drivers = {
        name: next((gpu.driver for gpu in gpus.gpus if gpu.driver), "no answer")
        for name, node in status.nodes.items()
        if node.state is not None
        and (gpus := node.state.gpus) is not None
        and gpus.pci
        and not any(gpu.pseudo for gpu in gpus.gpus)
    }
    if drivers and status.device != "cuda":
        yield "GPU driver", f"not asked for: worker_device is {status.device}"
    else:
        yield "GPU driver", shared(drivers) if drivers else "none: no GPU"
    yield "system", said(there, lambda each: f"{each.distribution}, kernel {each.kernel}")


def _environment(described: Described) -> str:
    if described.environment_digest is None:
        return "none"
    lock = f"lock {described.lock}, " if described.lock else ""
    digest = described.environment_digest[:DIGITS]
    return f"torch {described.torch}, Python {described.python}, {lock}digest {digest}"


def _lock(status: ClusterStatus) -> str:
    if status.master is None:
        return "unknown, because the master does not answer"
    lock = status.master.lock
    if lock is None:
        return "free"
    text = f"'{lock.verb}' by {lock.user} on {lock.host} (process {lock.pid}), since {lock.since}"
    if lock.ended:
        return f"{text}; that process has ended, so the next command takes it over"
    if lock.before_restart:
        return f"{text}; if that is this machine, it was restarted since, and the next command takes it over"
    return text


def _stacks(status: ClusterStatus) -> str:
    if status.master is None:
        return "unknown, because the master does not answer"
    found = status.master.stacks
    if found is None:
        return "none: the cluster was not provisioned, or not to its end"
    packages = status.master.packages
    words = []
    for name in found.stacks:
        declaration = read_declaration(role_of(name))
        of = declaration.version_of if declaration is not None else None
        words.append(f"{name} ({of} {packages[of]})" if of in packages else name)
    left = [f"{name}: {reason}" for name, reason in found.left_out.items()]
    return ", ".join(words) + (f"; left out: {' '.join(left)}" if left else "")


def _of_controller(status: ClusterStatus, results: Path) -> Iterator[tuple[str, str]]:
    """What is known on this machine alone."""
    yield "provisioned", _provisioned(status, results)
    alive = [note for _, note in read_notes(results) if note.alive]
    if not alive:
        yield "campaign", "none that was started from here"
    for note in alive:
        if note.campaign is None:
            yield "campaign", f"{note.matrix}: {note.doing or 'starting'}"
            continue
        campaign = open_campaign(results / note.matrix / note.campaign)
        observer = Observer(campaign, note, Estimates(results, campaign.file.identity.machines))
        state = observer.look()
        left = remaining_text(state.remaining)
        yield "campaign", f"{note.matrix}, {note.campaign}: {counts(state)}" + (f"; {left}" if left else "")
        for each in state.running:
            yield "", headline(each, observer)


def _provisioned(status: ClusterStatus, results: Path) -> str:
    try:
        last = newest_of(results, status.inventory, status.addresses)
    except UserError as error:
        return str(error)
    if last is None:
        return "no record of it on this machine"
    took = duration(last.seconds).removeprefix("about ")
    text = f"{_moment(last.ended)}, {'in' if last.status == 'ok' else 'FAILED after'} {took}"
    text += f", only {' '.join(last.partial)}" if last.partial else ""
    revision = (last.git.revision or "no commit")[:DIGITS]
    return f"{text}, from {revision}{' with uncommitted changes' if last.git.dirty else ''}"


def _moment(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")
