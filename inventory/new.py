"""`make inventory`: writes an inventory for machines of one's own, from options or from answers.

The example inventory/lab is its pattern: the same variables and comments, with the given hosts.
"""

from __future__ import annotations

import argparse
import getpass
import ipaddress
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeVar, get_args

EXAMPLE: Final = Path(__file__).resolve().parent / "lab"
DEFAULT: Final = Path("inventory") / "mine"
VARIABLES: Final = Path("group_vars") / "all" / "lab.yml"
USAGE_ERROR: Final = 2  # also argparse's exit code

Device = Literal["cpu", "cuda"]
T = TypeVar("T")

HOSTS: Final = """\
---
# Machines that ssh reaches with your key. They take these names as their host names.
# A host may also have, indented below its ansible_host:
#   ansible_port: 2222                                 if its sshd listens elsewhere
#   ansible_ssh_common_args: -o ProxyJump=user@gate    if it is reached through another machine
#   ansible_become_password: "{{{{ vault_sudo }}}}"        if its sudo asks (Ansible Vault; docs/admin.md)
#   cluster_address: 10.0.0.11                         if nodes reach it at another address than you do
all:
  children:
    cluster:
      children:
        master:
          hosts:
            master:
              ansible_host: {master}
        workers:
          hosts:
{workers}"""


class InventoryError(ValueError):
    """Its text is one sentence that says what is wrong and what to do."""


@dataclass(frozen=True)
class Lab:
    """What is known of the machines. The master's address among the workers' makes it a worker, too."""

    master: str
    workers: tuple[str, ...]
    user: str
    device: Device

    def __post_init__(self) -> None:
        """Raises InventoryError if they can't make a cluster."""
        if not self.workers:
            raise InventoryError("There is no worker: give at least one address.")
        twice = sorted({each for each in self.workers if self.workers.count(each) > 1})
        if twice:
            raise InventoryError(f"Two workers have the address {twice[0]}: give each its own.")

    @property
    def names(self) -> dict[str, str]:
        """The workers' addresses by name."""
        others = [address for address in self.workers if address != self.master]
        named = {address: f"worker{at}" for at, address in enumerate(others, start=1)} | {
            self.master: "master"
        }
        return {named[address]: address for address in self.workers}


def address(text: str) -> str:
    """The address of a node: IPv4, as a number.

    Raises:
        InventoryError: it is something else, or an address at which other nodes can't reach it.
    """
    try:
        parsed = ipaddress.ip_address(text)
    except ValueError as error:
        raise InventoryError(
            f"{text!r} is not an address: give it as a number such as 192.168.1.10, since names may resolve "
            "differently on each node."
        ) from error
    if parsed.version != 4:
        raise InventoryError(f"{text} is an IPv6 address: trainbed's services need IPv4.")
    if (
        parsed.is_loopback
        or parsed.is_unspecified
        or parsed.is_multicast
        or parsed == ipaddress.ip_address(2**32 - 1)
    ):
        raise InventoryError(
            f"Other nodes can't reach {text}: give the node's address on the cluster's network."
        )
    return str(parsed)


def addresses(text: str) -> tuple[str, ...]:
    """The addresses in `text`, separated by spaces or commas."""
    return tuple(address(each) for each in re.split(r"[\s,]+", text.strip()) if each)


def user(text: str) -> str:
    """A login name of Linux.

    Raises:
        InventoryError: it can't be one.
    """
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}", text):
        raise InventoryError(f"{text!r} is not a user's name on the nodes.")
    return text


def device(text: str) -> Device:
    """What training runs on.

    Raises:
        InventoryError: it is something else.
    """
    for each in get_args(Device):
        if text == each:
            return each  # type: ignore[no-any-return] # get_args knows no types
    raise InventoryError(f"{text!r} is neither cpu nor cuda.")


def free(folder: Path) -> Path:
    """A folder for the inventory, which nothing is in yet.

    Raises:
        InventoryError: something is.
    """
    if folder.is_symlink() or (folder.exists() and not (folder.is_dir() and not any(folder.iterdir()))):
        raise InventoryError(
            f"{folder} exists already, and is not overwritten: edit it, or choose another --directory."
        )
    return folder


def hosts_text(lab: Lab) -> str:
    """The content of hosts.yml."""
    lines = []
    for name, where in lab.names.items():
        lines.append(f"            {name}:" + (" {}  # trains, too" if name == "master" else ""))
        if name != "master":
            lines.append(f"              ansible_host: {where}")
    return HOSTS.format(master=lab.master, workers="".join(f"{line}\n" for line in lines))


def variables_text(lab: Lab) -> str:
    """The example's variables, with this user and device."""
    text = (EXAMPLE / VARIABLES).read_text(encoding="utf-8")
    for name, value in (("ansible_user", lab.user), ("worker_device", lab.device)):
        text, found = re.subn(rf"^{name}:.*$", f"{name}: {value}", text, flags=re.MULTILINE)
        if found != 1:
            raise InventoryError(f"{EXAMPLE / VARIABLES} must set {name} once, and sets it {found} times.")
    return text


def write(lab: Lab, folder: Path) -> None:
    """Writes the inventory: whole, or not at all.

    Raises:
        InventoryError: the folder is taken, or can't be made.
    """
    free(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        try:
            draft.chmod(0o755)
            (draft / VARIABLES).parent.mkdir(parents=True)
            (draft / "hosts.yml").write_text(hosts_text(lab), encoding="utf-8")
            (draft / VARIABLES).write_text(variables_text(lab), encoding="utf-8")
            draft.rename(folder)
        except BaseException:
            shutil.rmtree(draft)
            raise
    except OSError as error:
        raise InventoryError(f"{folder} can't be written: {error.strerror or error}.") from error


def ask(question: str, parse: Callable[[str], T], default: str = "") -> T:
    """The answer to a question on the terminal; asks again until it is valid."""
    shown = f"{question} [{default}]: " if default else f"{question}: "
    while True:
        try:
            return parse(input(shown).strip() or default)
        except InventoryError as error:
            print(f"  {error}")


def _asked(options: argparse.Namespace) -> tuple[Lab, Path]:
    """The lab and the folder, from the options, and for those that are missing from the terminal."""
    # All that was given is checked before anything is asked.
    folder = free(options.directory) if options.directory is not None else DEFAULT
    master = address(options.master) if options.master is not None else None
    workers = _workers(" ".join(options.workers)) if options.workers is not None else None
    name = user(options.user) if options.user is not None else None
    processor = device(options.device) if options.device is not None else None
    if master is not None and workers is not None:
        return Lab(master, workers, name or user(getpass.getuser()), processor or "cpu"), folder
    if not sys.stdin.isatty():
        raise InventoryError(
            f"--{'master' if master is None else 'workers'} is missing: make inventory "
            "ARGS='--master 192.168.1.10 --workers 192.168.1.11 192.168.1.12 --user lab', or call it in a "
            "terminal, where it asks."
        )
    master = master or ask("Address of the master", address)
    workers = workers or ask("Addresses of the workers (the master may be one)", _workers)
    name = name or ask("User that logs in there, with sudo", user, getpass.getuser())
    chosen = processor if processor is not None else _asked_device()
    if options.directory is None:
        folder = ask("Folder of the inventory", lambda text: free(Path(text)), str(DEFAULT))
    return Lab(master, workers, name, chosen), folder


def _asked_device() -> Device:
    return ask("Train on cpu or cuda", device, "cpu")


def _workers(text: str) -> tuple[str, ...]:
    return Lab("", addresses(text), "", "cpu").workers  # refuses none, and the same one twice


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="make inventory ARGS=", description="Write an inventory; what is not given is asked for."
    )
    parser.add_argument("--master", metavar="ADDRESS", help="IPv4 address of the master")
    parser.add_argument(
        "--workers", nargs="+", metavar="ADDRESS", help="IPv4 addresses of the workers; the master may be one"
    )
    parser.add_argument("--user", help="user that Ansible logs in as (default: yours)")
    parser.add_argument("--device", metavar="cpu|cuda", help="what training runs on (default: cpu)")
    parser.add_argument("--directory", type=Path, help=f"where to write it (default: {DEFAULT})")
    return parser


def _end(lab: Lab, folder: Path) -> Iterable[str]:
    workers = f"{len(lab.workers)} worker{'' if len(lab.workers) == 1 else 's'}"
    yield f"Wrote {folder / 'hosts.yml'} (a master and {workers})"
    yield f"and {folder / VARIABLES} (user {lab.user}, {lab.device}). Look at both, then:"
    yield f"    export ANSIBLE_INVENTORY={shlex.quote(str(folder))}"
    yield "    make provision"


def main(argv: Sequence[str] | None = None) -> int:
    """Writes one inventory; returns the exit code."""
    arguments = _parser().parse_args(argv)
    try:
        lab, folder = _asked(arguments)
        write(lab, folder)
    except InventoryError as error:
        print(error, file=sys.stderr)
        return USAGE_ERROR
    except (EOFError, KeyboardInterrupt):
        print("\nNothing was written.", file=sys.stderr)
        return 130
    print(*_end(lab, folder), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
