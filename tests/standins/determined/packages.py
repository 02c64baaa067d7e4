"""Packages of the stand-ins, built like the release's: names, files, units and install scripts."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
VERSION = "0.38.1"
MODULES = ("tests", "standins", "determined")  # the Python package that the programs are in
SHARED = {"master": ["trials.py"], "agent": []}  # modules of each program, besides its own

PROGRAM = """\
#!/bin/sh
export PYTHONPATH=/usr/share/determined-standin/{kind} PYTHONDONTWRITEBYTECODE=1
exec /opt/trainbed/env/current/bin/python -m {module}
"""

MASTER_UNIT = """\
[Unit]
Description=Determined master (stand-in)
StartLimitBurst=15
StartLimitIntervalSec=20

[Service]
ExecStart=/usr/bin/determined-master
Restart=always
RestartSec=1
CacheDirectory=determined

[Install]
WantedBy=multi-user.target
"""
MASTER_SOCKET = """\
[Unit]
Description=Determined master's socket (stand-in)

[Socket]
ListenStream=0.0.0.0:8080

[Install]
WantedBy=sockets.target
"""
AGENT_UNIT = """\
[Unit]
Description=Determined agent (stand-in)
After=docker.service
Requires=docker.service

[Service]
ExecStart=/usr/bin/determined-agent run
Restart=always

[Install]
WantedBy=multi-user.target
"""
CONTROL = """\
Package: determined-{kind}
Version: {version}
Architecture: amd64
Maintainer: trainbed <trainbed@localhost>
Description: Stand-in for Determined's {kind}, for tests where the real one cannot be had
"""
AFTER = """\
#!/bin/sh
set -e
systemctl daemon-reload
deb-systemd-invoke start determined-{kind}.service || true
"""


def build(folder: Path, variant: str = "") -> Path:
    """Build both packages into `folder`, under the release's names; returns the folder.

    Another `variant` is another build of the same version, which does the same.
    """
    folder.mkdir(parents=True, exist_ok=True)
    units = {"determined-master.service": MASTER_UNIT, "determined-master.socket": MASTER_SOCKET}
    _package(folder, "master", units, "log:\n  level: info\n", variant)
    # Like the release's: without the master's address.
    _package(folder, "agent", {"determined-agent.service": AGENT_UNIT}, "# master_host: 0.0.0.0\n", variant)
    return folder


def _package(folder: Path, kind: str, units: dict[str, str], config: str, variant: str) -> None:
    root = folder / f".{kind}"
    shutil.rmtree(root, ignore_errors=True)
    # A node may be master and worker: no two packages have the same file.
    share = root / "usr/share/determined-standin" / kind
    modules = share.joinpath(*MODULES)
    modules.mkdir(parents=True)
    for package in (modules, *modules.parents[: len(MODULES) - 1]):
        (package / "__init__.py").touch()
    for name in (f"{kind}.py", *SHARED[kind]):
        shutil.copy(HERE / name, modules)
    if kind == "master":
        shutil.copytree(HERE / "answers", modules / "answers")
    (share / "variant").write_text(f"{variant}\n", encoding="ascii")
    files = {f"lib/systemd/system/{name}": text for name, text in units.items()}
    files[f"etc/determined/{kind}.yaml"] = config
    files[f"usr/bin/determined-{kind}"] = PROGRAM.format(kind=kind, module=".".join((*MODULES, kind)))
    files["DEBIAN/control"] = CONTROL.format(kind=kind, version=VERSION)
    files["DEBIAN/conffiles"] = f"/etc/determined/{kind}.yaml\n"
    files["DEBIAN/postinst"] = AFTER.format(kind=kind)
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="ascii")
    for name in ("DEBIAN/postinst", f"usr/bin/determined-{kind}"):
        (root / name).chmod(0o755)
    package = folder / f"determined-{kind}_{VERSION}_linux_amd64.deb"
    # The same content makes the same package, so building it again changes no node.
    constant = {**os.environ, "SOURCE_DATE_EPOCH": "0"}
    subprocess.run(
        ["dpkg-deb", "--root-owner-group", "--build", str(root), str(package)],
        env=constant,
        check=True,
        capture_output=True,
    )
    shutil.rmtree(root)
