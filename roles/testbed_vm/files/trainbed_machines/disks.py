"""The disks of one machine: the base system, set up as an installer would, and made rough."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from pathlib import Path

from trainbed_machines.errors import MachinesError
from trainbed_machines.image import last_line
from trainbed_machines.plan import Kind, Request, Rough

CACHE_PATH = "/var/cache/trainbed"
CACHE_MB = 40_000
REGISTRY_PATH = "/var/lib/docker-registry"
#: Names of the interfaces: the cluster's, and the one to the outside.
INTERFACES: dict[Kind, tuple[str, str]] = {
    "uml": ("vec0", "vec1"),
    "kvm": ("eth0", "eth1"),
    "tcg": ("eth0", "eth1"),
}
#: Somebody else's: nothing of it stands in trainbed's way.
DAEMON = {
    "debug": False,
    "log-opts": {"max-size": "7m"},
    "max-concurrent-downloads": 2,
    "shutdown-timeout": 9,
}
CLOUD_CONFIG = """\
datasource_list: [NoCloud, None]
network: {config: disabled}
manage_etc_hosts: true
ssh_deletekeys: false
locale: C.UTF-8
apt: {preserve_sources_list: true}
"""
HOLD_APT = """\
#!/usr/bin/python3
# Holds apt's locks, as its timers do in the first minutes of a machine's life. These may be over when it is
# provisioned, so that the time counts from trainbed's first file, or from ten minutes after the boot.
import fcntl, os, sys, time
held = [open(f"/var/lib/{name}", "w") for name in ("dpkg/lock-frontend", "dpkg/lock", "apt/lists/lock")]
for each in held:
    fcntl.lockf(each, fcntl.LOCK_EX)
end = time.monotonic() + 600
while time.monotonic() < end and not os.path.exists("/etc/apt/apt.conf.d/90trainbed-patience"):
    time.sleep(1)
print("held while trainbed provisions" if time.monotonic() < end else "nobody came", flush=True)
time.sleep(float(sys.argv[1]))
"""
#: A user-mode kernel's network card now and then stops receiving under load; taken down and up, it goes on.
WATCH_NETWORK = """\
#!/bin/sh
before=
while sleep 5; do
    read -r now < /sys/class/net/$1/statistics/rx_packets
    if [ "$now" = "$before" ] && ! ping -q -c 3 -W 2 $2 > /dev/null; then
        echo "$1 receives nothing: taking it down and up"
        ip link set $1 down
        ip link set $1 up
    fi
    before=$now
done
"""
UNIT = """\
[Unit]
Description={says}
{condition}
[Service]
Type={type}
ExecStart={command}
[Install]
WantedBy=multi-user.target
"""


def make_disks(
    request: Request, node: str, rough: Rough, *, kind: Kind, base: Path, state: Path, password: str
) -> None:
    """Make a machine's disks in `state`/machines/`node`; `disk.img` comes last, so half a machine is none.

    Raises:
        MachinesError: a tool failed; there is not enough room, for example.
    """
    folder = state / "machines" / node
    folder.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(dir=folder, prefix=".making-"))
    try:
        root = work / "root"
        root.mkdir(mode=0o755)
        tool("tar", "--extract", f"--file={base / 'root.tar'}", f"--directory={root}", "--numeric-owner")
        install(root, request, node, rough, kind=kind, settings=state / "nodes" / node, password=password)
        if rough.var_mb:
            (root / "var").rename(work / "var")
            (root / "var").mkdir(mode=0o755)
            file_system(folder / "var.img", "var", rough.var_mb, work / "var")
        file_system(work / "disk.img", "root", request.disk_mb, root)
        (work / "disk.img").rename(folder / "disk.img")
    finally:
        shutil.rmtree(work)


def make_cache(path: Path) -> None:
    """Make the disk for what the master fetches and builds, unless it is there: it outlives the testbed."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".making")
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".making-") as content:
            (Path(content) / "registry").mkdir()
            Path(content).chmod(0o755)
            file_system(draft, "cache", CACHE_MB, Path(content))
        draft.rename(path)


def file_system(image: Path, label: str, size_mb: int, content: Path | None) -> None:
    """An ext4 file system in a sparse file."""
    image.unlink(missing_ok=True)
    tool("truncate", f"--size={size_mb}M", str(image))
    filled = ["-d", str(content)] if content else []
    tool("mke2fs", "-q", "-t", "ext4", "-m", "1", "-L", label, *filled, str(image))


def install(
    root: Path, request: Request, node: str, rough: Rough, *, kind: Kind, settings: Path, password: str
) -> None:
    """Write what makes the base system in `root` this node."""
    write(root, "etc/hostname", f"{node}\n")
    # As Debian's installer leaves it.
    own = f"127.0.1.1\t{node}\n" if request.rough else ""
    write(
        root,
        "etc/hosts",
        f"127.0.0.1\tlocalhost\n{own}\n::1     localhost ip6-localhost ip6-loopback\n",
    )
    inside, outside = INTERFACES[kind]
    text = "auto lo\niface lo inet loopback\n" + interface(inside, request.addresses[node])
    if node in request.masters:
        text += interface(outside, f"{request.outside_prefix}.2")
        text += f"    gateway {request.outside_prefix}.1\n"
    if (root / "usr/sbin/ifup").exists():
        write(root, "etc/network/interfaces", text)
    else:
        networkd(root, request, node, kind)
    (root / "etc/resolv.conf").unlink(missing_ok=True)
    write(root, "etc/resolv.conf", nameservers() if node in request.masters else "")
    mounts = ["LABEL=root / ext4 errors=remount-ro 0 1"]
    if rough.var_mb:
        mounts.append("LABEL=var /var ext4 defaults 0 2")
    if node in request.masters:
        mounts.append(f"LABEL=cache {CACHE_PATH} ext4 defaults 0 2")
        # The image takes longest to build. Its tag says what is in it: an old one is never taken for another.
        mounts.append(
            f"{CACHE_PATH}/registry {REGISTRY_PATH} none bind,x-systemd.requires-mounts-for={CACHE_PATH} 0 0"
        )
        for directory in (CACHE_PATH, REGISTRY_PATH):
            (root / directory[1:]).mkdir(parents=True, exist_ok=True)
        for number, directory in enumerate(request.directories):
            (root / directory[1:]).mkdir(parents=True, exist_ok=True)
            mounts.append(
                f"none {directory} hostfs ro,{directory} 0 0"
                if kind == "uml"
                else f"host{number} {directory} 9p ro,trans=virtio,version=9p2000.L,msize=262144 0 0"
            )
    write(root, "etc/fstab", "\n".join(mounts) + "\n")
    log_in(root, request, rough, settings, password)
    inherit(root, settings)
    if kind == "uml":
        # This kernel's nf_tables knows no IPv4.
        for name in ("iptables", "ip6tables"):
            legacy = f"/usr/sbin/{name}-legacy"
            if (root / "etc/alternatives" / name).is_symlink():
                inside_of(root, "update-alternatives", "--set", name, legacy)
            else:  # a cloud image has none yet; this link leads somewhere once Docker has brought it
                (root / "usr/local/sbin" / name).symlink_to(legacy)
        write(root, "usr/local/sbin/testbed-watch-network", WATCH_NETWORK, 0o755)
        watch = f"/usr/local/sbin/testbed-watch-network {inside} {request.prefix}.1"
        unit(root, "testbed-watch-network", watch, once=False)
    make_rough(root, request, node, rough)


def networkd(root: Path, request: Request, node: str, kind: Kind) -> None:
    """The same for systemd-networkd, which cloud images have instead of ifupdown."""
    inside, outside = INTERFACES[kind]
    write(root, f"etc/systemd/network/10-{inside}.network", network_unit(inside, request.addresses[node]))
    if node in request.masters:
        text = network_unit(outside, f"{request.outside_prefix}.2") + f"Gateway={request.outside_prefix}.1\n"
        write(root, f"etc/systemd/network/10-{outside}.network", text)
    inside_of(root, "systemctl", "enable", "systemd-networkd.service")


def network_unit(name: str, address: str) -> str:
    """An interface with a fixed address, for systemd-networkd."""
    return f"[Match]\nName={name}\n[Network]\nAddress={address}/24\n"


def interface(name: str, address: str) -> str:
    """An interface with a fixed address, for /etc/network/interfaces."""
    return f"\nauto {name}\niface {name} inet static\n    address {address}/24\n"


def log_in(root: Path, request: Request, rough: Rough, settings: Path, password: str) -> None:
    """Who may log in, and how sshd is reached."""
    for name, mode in (("ssh_host_ed25519_key", 0o600), ("ssh_host_ed25519_key.pub", 0o644)):
        write(root, f"etc/ssh/{name}", (settings / name).read_text(encoding="utf-8"), mode)
    home = root / "home" / request.login
    if not home.exists():  # a cloud image, whose user would come with the first boot
        inside_of(root, "useradd", "--create-home", "--shell", "/bin/bash", request.login)
    write(
        root,
        f"home/{request.login}/.ssh/authorized_keys",
        (settings / "authorized_keys").read_text(encoding="utf-8"),
        0o600,
    )
    (home / ".ssh").chmod(0o700)
    for path in (home / ".ssh", home / ".ssh/authorized_keys"):
        shutil.chown(path, home.stat().st_uid, home.stat().st_gid)
    asks = "ALL" if rough.sudo_password else "NOPASSWD:ALL"
    write(root, f"etc/sudoers.d/{request.login}", f"{request.login} ALL=(ALL) {asks}\n", 0o440)
    if rough.sudo_password:
        inside_of(root, "chpasswd", said=f"{request.login}:{password}\n")
    lines = ["PasswordAuthentication no"]
    if rough.ssh_port != 22:
        lines.append(f"Port {rough.ssh_port}")
    if rough.jump:
        # From this machine there is no direct way.
        lines.append(f"DenyUsers *@{request.prefix}.1")
    write(root, "etc/ssh/sshd_config.d/testbed.conf", "\n".join(lines) + "\n")


def inherit(root: Path, settings: Path) -> None:
    """What this machine says about the outside: where packages come from, certificates, proxies."""
    places = {
        "sources.list": ("etc/apt/sources.list", 0o644),
        "auth.conf": ("etc/apt/auth.conf.d/testbed.conf", 0o600),
        "apt.conf": ("etc/apt/apt.conf.d/20testbed", 0o600),
        "pip.conf": ("etc/pip.conf", 0o600),
        "environment": ("etc/environment", 0o600),
    }
    for name, (place, mode) in places.items():
        text = (settings / name).read_text(encoding="utf-8") if (settings / name).exists() else ""
        if text:
            write(root, place, text, mode)
    if (root / "etc/apt/sources.list").exists():
        shutil.rmtree(root / "etc/apt/sources.list.d", ignore_errors=True)
    for keyring in (settings / "keyrings").glob("*"):
        (root / "etc/apt/keyrings").mkdir(exist_ok=True)
        shutil.copy(keyring, root / "etc/apt/keyrings")
    certificates = list((settings / "certificates").glob("*.crt"))
    for certificate in certificates:
        shutil.copy(certificate, root / "usr/local/share/ca-certificates")
    if certificates:
        inside_of(root, "update-ca-certificates")


def make_rough(root: Path, request: Request, node: str, rough: Rough) -> None:
    """Add what a clean machine would not have."""
    if rough.cloud_init:
        write(root, "etc/cloud/cloud.cfg.d/99_testbed.cfg", CLOUD_CONFIG)
        write(root, "var/lib/cloud/seed/nocloud/meta-data", f"instance-id: {node}\nlocal-hostname: {node}\n")
        write(root, "var/lib/cloud/seed/nocloud/user-data", "#cloud-config\n")
    else:
        write(root, "etc/cloud/cloud-init.disabled", "")
    if not request.rough:
        for timer in ("apt-daily.timer", "apt-daily-upgrade.timer"):
            inside_of(root, "systemctl", "disable", timer)
    if rough.apt_lock_s:
        write(root, "usr/local/sbin/testbed-hold-apt", HOLD_APT, 0o755)
        unit(root, "testbed-hold-apt", f"/usr/local/sbin/testbed-hold-apt {rough.apt_lock_s}", once=False)
    first = []
    if rough.clock_s:
        first.append(f'date --set="{rough.clock_s:+d} seconds"')
    if rough.ufw:
        first += [f"ufw allow {rough.ssh_port}/tcp", "ufw --force enable"]
    if first:
        script = "\n".join(["#!/bin/sh", "set -e", *first, "touch /etc/testbed-booted", ""])
        write(root, "usr/local/sbin/testbed-first-boot", script, 0o755)
        unit(root, "testbed-first-boot", "/usr/local/sbin/testbed-first-boot", once=True)
    if rough.engine == "daemon.json":
        write(root, "etc/docker/daemon.json", json.dumps(DAEMON, indent=2) + "\n")
    if rough.engine == "docker-ce":
        packages = [f"/usr/local/lib/testbed/{name}.deb" for name in ("containerd.io", "docker-ce")]
        inside_of(root, "env", "DEBIAN_FRONTEND=noninteractive", "dpkg", "--install", *packages)


def unit(root: Path, name: str, command: str, *, once: bool) -> None:
    """A service that starts at every boot, or at the first alone."""
    condition = "ConditionPathExists=!/etc/testbed-booted\nBefore=ssh.service\n" if once else ""
    text = UNIT.format(says=name, condition=condition, type="oneshot" if once else "exec", command=command)
    write(root, f"etc/systemd/system/{name}.service", text)
    wants = root / "etc/systemd/system/multi-user.target.wants"
    wants.mkdir(exist_ok=True)
    (wants / f"{name}.service").symlink_to(f"/etc/systemd/system/{name}.service")


def nameservers() -> str:
    """This machine's name servers that others can ask, as resolv.conf has them."""
    for path in ("/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"):
        if Path(path).exists():
            lines = [
                line
                for line in Path(path).read_text(encoding="utf-8").splitlines()
                if line.startswith("nameserver") and "127.0.0." not in line
            ]
            if lines:
                return "\n".join(lines) + "\n"
    return ""


def write(root: Path, name: str, text: str, mode: int = 0o644) -> None:
    """Write a file of the new system, which belongs to root."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)


def inside_of(root: Path, *command: str, said: str = "") -> None:
    """Run a command of the new system, in it.

    `policy-rc.d` keeps packages from starting services, which would run on this machine.
    """
    policy = root / "usr/sbin/policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 101\n", encoding="utf-8")
    policy.chmod(0o755)
    try:
        tool("chroot", str(root), *command, said=said)
    finally:
        policy.unlink()


def tool(*command: str, said: str = "") -> None:
    """Run a command.

    Raises:
        MachinesError: it failed.
    """
    done = subprocess.run(
        command,
        input=said,
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"},
    )
    if done.returncode:
        raise MachinesError(f"'{' '.join(command[:4])} …' failed: {last_line(done.stderr or done.stdout)}")
