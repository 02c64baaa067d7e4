"""The three ways to run a machine: KVM, user-mode Linux, QEMU's emulation; and which of them works here."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from trainbed_machines.errors import MachinesError
from trainbed_machines.plan import KINDS, Kind, Request

#: What each kind means for times, for the line on screen.
MEANS: dict[Kind, str] = {
    "kvm": "times are those of real machines",
    "uml": "programs compute at native speed, on one core each; system calls are some 40 times slower",
    "tcg": "everything is some ten times slower than on real machines",
}
#: QEMU's options: no screen, and the console on standard output.
CONSOLE_ALONE = ("-display", "none", "-serial", "stdio", "-monitor", "none")
#: Seconds that a kernel may take to show that it runs.
PROBE_S = 20
#: Printed by a kernel that runs as far as to look for its root file system, which a probe has not.
ALIVE = (
    "Unable to mount root fs",
    "Cannot open root device",
    "Freeing unused kernel",
    "Run /init as init process",
)
#: Mappings that a process of this machine may have: a user-mode machine's memory is mapped page by page.
MAPPINGS = 1_000_000


@dataclasses.dataclass(frozen=True)
class Machine:
    """One machine: what its process is started with."""

    name: str
    disk: Path
    more_disks: list[Path]
    taps: list[str]
    directories: list[str]
    cores: int
    memory_mb: int
    folder: Path  # for its console and sockets
    base: Path  # kernel and initrd


def command(kind: Kind, machine: Machine) -> list[str]:
    """The command that runs a machine.

    The path of its disk stands in it, by which its processes are found (`processes.of`).
    """
    return user_mode(machine) if kind == "uml" else qemu(kind, machine)


def user_mode(machine: Machine) -> list[str]:
    """A machine that is an ordinary process of this one."""
    disks = [machine.disk, *machine.more_disks]
    return [
        "linux.uml",
        f"umid={machine.name}",
        f"uml_dir={machine.folder}/",
        f"mem={machine.memory_mb}M",
        *(f"ubd{number}={disk}" for number, disk in enumerate(disks)),
        "root=/dev/ubda",
        "rw",
        "con=null",
        "con0=null,fd:1",
        "ssl=null",
        *(
            f"vec{number}:transport=tap,ifname={tap},depth=128,gro=1,mac={hardware_address(tap)}"
            for number, tap in enumerate(machine.taps)
        ),
    ]


def qemu(kind: Kind, machine: Machine) -> list[str]:
    """A machine of QEMU's, with or without the processor's help."""
    accelerator = (
        ["-accel", "kvm", "-cpu", "host"] if kind == "kvm" else ["-accel", "tcg,thread=multi", "-cpu", "max"]
    )
    found = [
        "qemu-system-x86_64",
        *accelerator,
        "-machine",
        "q35",
        "-smp",
        str(machine.cores),
        "-m",
        str(machine.memory_mb),
    ]
    found += [
        "-name",
        machine.name,
        *CONSOLE_ALONE,
        "-device",
        "virtio-rng-pci",
    ]
    for disk in [machine.disk, *machine.more_disks]:
        found += ["-drive", f"file={disk},format=raw,if=virtio,cache=writeback,discard=unmap"]
    for number, tap in enumerate(machine.taps):
        found += ["-netdev", f"tap,id=net{number},ifname={tap},script=no,downscript=no"]
        found += ["-device", f"virtio-net-pci,netdev=net{number},mac={hardware_address(tap)}"]
    for number, directory in enumerate(machine.directories):
        found += ["-virtfs", f"local,path={directory},mount_tag=host{number},security_model=none,readonly=on"]
    arguments = "root=LABEL=root rw console=ttyS0 net.ifnames=0"
    return [
        *found,
        "-kernel",
        str(machine.base / "vmlinuz"),
        "-initrd",
        str(machine.base / "initrd"),
        "-append",
        arguments,
    ]


def hardware_address(tap: str) -> str:
    """A locally administered MAC address, the same for the same interface at every start."""
    number = sum(byte * 257**place for place, byte in enumerate(tap.encode()))
    return "52:54:" + ":".join(f"{number >> shift & 0xFF:02x}" for shift in (24, 16, 8, 0))


def choose(request: Request, base: Path, work: Path, report: Callable[[str], None]) -> Kind:
    """The kind that was asked for, or the first that works here; reports which, and what it means for times.

    Raises:
        MachinesError: the wanted kind, or any, does not work here; says why.
    """
    reasons: list[str] = []
    for kind in KINDS if request.kind == "auto" else (request.kind,):
        began = time.monotonic()
        reason = why_not(kind, base, work)
        if reason is None:
            skipped = "".join(f"; {each}" for each in reasons)
            report(f"The machines run on {kind}: {MEANS[kind]}{skipped}.")
            return kind
        reasons.append(f"{kind} does not work here ({reason}, after {time.monotonic() - began:.0f} s)")
    raise MachinesError(f"No virtual machine can run here: {'; '.join(reasons)}.")


def why_not(kind: Kind, base: Path, work: Path) -> str | None:
    """Why a kind does not work here; None if a kernel started."""
    program = "linux.uml" if kind == "uml" else "qemu-system-x86_64"
    if shutil.which(program) is None:
        return f"{program} is not installed"
    if kind == "kvm" and not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return "there is no /dev/kvm that may be used"
    if kind == "uml":
        probe = [
            "linux.uml",
            f"umid=probe-{os.getpid()}",
            f"uml_dir={work}/",
            "mem=64M",
            "con=null",
            "con0=null,fd:1",
            "ssl=null",
            "panic=1",
        ]
    else:
        accelerator = ["-accel", "kvm", "-cpu", "host"] if kind == "kvm" else ["-accel", "tcg", "-cpu", "max"]
        kernel = ["-kernel", str(base / "vmlinuz"), "-append", "console=ttyS0 panic=-1"]
        probe = [
            "qemu-system-x86_64",
            *accelerator,
            "-m",
            "512",
            *CONSOLE_ALONE,
            "-no-reboot",
            *kernel,
        ]
    return starts(probe, PROBE_S if kind != "tcg" else 6 * PROBE_S)


def starts(probe: list[str], limit_s: float) -> str | None:
    """Why a kernel does not start; None if it printed that it runs."""
    process = subprocess.Popen(
        probe,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    assert process.stdout is not None
    os.set_blocking(process.stdout.fileno(), False)
    end, said = time.monotonic() + limit_s, ""
    try:
        while time.monotonic() < end:
            ended = process.poll() is not None
            said += (process.stdout.read() or b"").decode(errors="replace")
            if any(word in said for word in ALIVE):
                return None
            if ended:
                lines = [line.strip() for line in said.splitlines() if line.strip()]
                return f"its kernel does not start: {lines[-1][:160] if lines else 'it says nothing'}"
            time.sleep(0.1)
        return f"its kernel hangs, {limit_s:.0f} s after its start"
    finally:
        process.kill()
        process.wait()


def prepare_host(kind: Kind) -> bool:
    """Change what this machine must allow; True if anything was changed."""
    setting = Path("/proc/sys/vm/max_map_count")
    if kind != "uml" or int(setting.read_text(encoding="ascii")) >= MAPPINGS:
        return False
    # With fewer, a process of a machine that maps much (Python with torch, Java) is killed.
    setting.write_text(f"{MAPPINGS}\n", encoding="ascii")
    return True


def room_for_memory(folder: Path, memory_mb: int) -> Path:
    """Where the files are that are user-mode machines' memory: in this machine's own, if it has room.

    Args:
        folder: the other choice, on disk.
        memory_mb: of all machines together.
    """
    memory = Path("/dev/shm")
    if memory.is_dir() and shutil.disk_usage(memory).free > memory_mb * 1024**2:
        options = os.statvfs(memory).f_flag
        if not options & os.ST_NOEXEC:
            return memory
    folder.mkdir(parents=True, exist_ok=True)
    return folder
