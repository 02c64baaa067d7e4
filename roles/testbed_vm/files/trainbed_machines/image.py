"""The system that all machines start from: made once for each recipe, by mmdebstrap or from a cloud image."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from trainbed_machines.errors import MachinesError
from trainbed_machines.plan import Request

HERE = Path(__file__).parent
RECIPE = HERE / "make-system"
#: What Debian's installer leaves on a server, and what is rough about some of the nodes.
PACKAGES = (
    "systemd,systemd-sysv,dbus,libpam-systemd,systemd-timesyncd,udev,kmod,e2fsprogs,procps",
    "ifupdown,iproute2,iputils-ping",
    "openssh-server,sudo,python3,python3-apt,ca-certificates,cron,locales,apparmor,rsyslog",
    "cloud-init,unattended-upgrades,needrestart,ufw,iptables",
)
#: The kernel's package; Ubuntu has another, and some of the packages above in its component universe.
KERNEL, UBUNTU_KERNEL = "linux-image-amd64", "linux-image-generic"
UBUNTU = ("jammy", "noble", "plucky", "questing", "resolute")
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
MODULES = Path("/usr/lib/uml/modules")


def recipe_digest(request: Request) -> str:
    """A name for the system that this request needs; another recipe, release or kernel has another one."""
    kernels = sorted(path.name for path in MODULES.glob("*"))
    content = [request.release, request.login, *PACKAGES, RECIPE.read_text(encoding="utf-8"), *kernels]
    if request.base_image:
        image = Path(request.base_image)
        content.append(f"{image} {image.stat().st_size} {image.stat().st_mtime_ns}")
    return hashlib.sha256("\0".join(content).encode()).hexdigest()[:12]


def base_system(
    request: Request, cache: Path, settings: Path, report: Callable[[str], None]
) -> tuple[Path, bool]:
    """The folder with `root.tar`, `vmlinuz` and `initrd`, and whether it had to be made.

    Args:
        request: names the release, the login user and perhaps a cloud image.
        cache: where such folders are kept.
        settings: this machine's apt settings and certificates, as the role `testbed` writes them.
        report: is told what takes long.

    Raises:
        MachinesError: it can't be made.
    """
    if request.base_image and request.rough:
        raise MachinesError(
            "A cloud image lacks what makes machines rough: set TESTBED_ROUGH=false, or unset "
            "TESTBED_BASE_IMAGE."
        )
    if request.base_image and not Path(request.base_image).is_file():
        raise MachinesError(
            f"{request.base_image} is not a file: let TESTBED_BASE_IMAGE name a cloud image, or unset it."
        )
    folder = cache / f"{request.release}-{recipe_digest(request)}"
    if (folder / "root.tar").exists():
        return folder, False
    cache.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(dir=cache, prefix=".making-"))
    try:
        if request.base_image:
            unpack_image(Path(request.base_image), draft, report)
        else:
            debootstrap(request, settings, draft / "root.tar")
        for name, pattern in (("vmlinuz", "./boot/vmlinuz-*"), ("initrd", "./boot/initrd.img-*")):
            take_newest(draft / "root.tar", pattern, draft / name)
        draft.chmod(0o755)
        draft.rename(folder)
    except BaseException:
        shutil.rmtree(draft)
        raise
    return folder, True


def debootstrap(request: Request, settings: Path, target: Path) -> None:
    """Make the root file system from the machine's own apt sources."""
    sources = (settings / "sources.list").read_text(encoding="utf-8")
    ubuntu = request.release in UBUNTU
    packages = [UBUNTU_KERNEL if ubuntu else KERNEL, *PACKAGES]
    command = [
        "mmdebstrap",
        "--quiet",
        "--variant=important",
        f"--include={','.join(packages)}",
        *(["--components=main,universe"] if ubuntu else []),
        f'--aptopt=Dir::Etc::netrc "{settings / "auth.conf"}"',
        f'--aptopt=#include "{settings / "apt.conf"}"',
        # Apt runs inside, too, with the same settings; none of them stays.
        f"--customize-hook=cp '{settings / 'apt.conf'}' \"$1/etc/apt/apt.conf.d/99mmdebstrap\"",
        f"--customize-hook=cp '{settings / 'auth.conf'}' \"$1/etc/apt/auth.conf.d/testbed.conf\"",
        f"--customize-hook=cat '{CERTIFICATES}' >> \"$1{CERTIFICATES}\"",
        f"--customize-hook=cp '{RECIPE}' \"$1/make-system\"",
        f'--customize-hook=chroot "$1" sh /make-system {request.login}',
        '--customize-hook=rm -f "$1/make-system" "$1/etc/apt/apt.conf.d/99mmdebstrap"',
        request.release,
        str(target),
        # With no source of this release among the machine's own, mmdebstrap takes the one it knows.
        *(["-"] if sources else []),
    ]
    log = settings / "base-system.log"
    with log.open("w", encoding="utf-8") as said:
        made = subprocess.run(command, input=sources, stdout=said, stderr=said, text=True, check=False)
    if made.returncode:
        raise MachinesError(
            f"mmdebstrap could not make a base system of {request.release}; it told why in {log}."
        )
    add_modules(target)


def add_modules(target: Path) -> None:
    """Add the modules of the user-mode kernel, if this machine has one."""
    if MODULES.is_dir():
        subprocess.run(
            [
                "tar",
                "--append",
                f"--file={target}",
                f"--directory={MODULES.parent}",
                "--transform=s,^modules,./usr/lib/modules,",
                "--owner=0",
                "--group=0",
                "modules",
            ],
            check=True,
        )


def unpack_image(image: Path, folder: Path, report: Callable[[str], None]) -> None:
    """Take the root file system out of a cloud image; a KVM that is there and does not work is told of.

    Raises:
        MachinesError: the tool that reads it is missing, or it holds no Linux.
    """
    if shutil.which("virt-tar-out") is None:
        raise MachinesError("Reading a cloud image needs virt-tar-out: install libguestfs-tools.")
    taken = virt_tar_out(image, folder)
    if taken.returncode and "LIBGUESTFS_BACKEND_SETTINGS" not in os.environ:
        report("virt-tar-out could not read the image; once more without KVM, which takes a minute or two.")
        taken = virt_tar_out(image, folder, LIBGUESTFS_BACKEND_SETTINGS="force_tcg")
    if taken.returncode:
        raise MachinesError(f"{image} can't be read as a cloud image: {first_error(taken.stderr)}")
    add_modules(folder / "root.tar")


def virt_tar_out(image: Path, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Write what the image holds to `root.tar` in the folder; `variables` are added to the environment."""
    return subprocess.run(
        ["virt-tar-out", "-a", str(image), "/", str(folder / "root.tar")],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | variables,
    )


def take_newest(tar: Path, pattern: str, target: Path) -> None:
    """Extract the last file, by name, that matches a pattern.

    Raises:
        MachinesError: there is none.
    """
    listed = subprocess.run(
        ["tar", "--list", f"--file={tar}", "--wildcards", pattern],
        capture_output=True,
        text=True,
        check=False,
    )
    names = sorted(listed.stdout.split())
    if not names:
        raise MachinesError(
            f"The base system has no {pattern.removeprefix('./')}: it needs a kernel of its own."
        )
    with target.open("wb") as file:
        subprocess.run(
            ["tar", "--extract", "--to-stdout", f"--file={tar}", names[-1]], stdout=file, check=True
        )


def first_error(text: str) -> str:
    """The first line that names an error: libguestfs explains at length after it. Else the last line."""
    found = [line.strip() for line in text.splitlines() if "error:" in line]
    return found[0] if found else last_line(text)


def last_line(text: str) -> str:
    """The last line that says something."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"
