#!/usr/bin/python
"""Ansible module: how this machine reaches the outside, for its nodes to inherit."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from ansible.module_utils.basic import AnsibleModule
from debian.deb822 import Deb822

DOCUMENTATION = r"""
---
module: outside_settings
short_description: Read how this machine reaches the outside
description:
  - Reads apt sources, pip settings, added certificate authorities and proxies of the machine it runs on.
  - Credentials in apt's addresses are split off into lines for C(auth.conf.d); the sources hold none.
  - The result can hold credentials, so the caller must set C(no_log).
requirements: [python-debian]
options:
  release:
    description: Code name of the distribution's release that the nodes run, for example C(bookworm).
    type: str
    required: true
  apt_root:
    description: Directory that holds C(sources.list), C(sources.list.d) and C(apt.conf.d).
    type: path
    default: /etc/apt
  pip:
    description: Command that runs the machine's own pip; by default the one on the PATH.
    type: list
    elements: str
"""

EXAMPLES = r"""
- name: Read how this machine reaches the outside
  outside_settings:
    release: bookworm
  register: testbed_outside
  no_log: true
"""

RETURN = r"""
apt_sources: {description: One-line apt sources without credentials., type: list, returned: always}
apt_auth: {description: Lines for auth.conf.d., type: list, returned: always}
apt_conf: {description: Lines of apt configuration (proxies)., type: list, returned: always}
keyrings: {description: Keyring files that the sources name and nodes lack., type: list, returned: always}
pip_conf: {description: Text of a pip.conf., type: str, returned: always}
directories: {description: Local directories that these settings name., type: list, returned: always}
certificates: {description: Files of added certificate authorities., type: list, returned: always}
environment: {description: Proxy variables., type: dict, returned: always}
"""

#: Where a node finds the bundle that its distribution builds from the added certificates.
NODE_CA_BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
PROXY_NAMES = ("http_proxy", "https_proxy", "ftp_proxy", "no_proxy", "all_proxy")
#: pip settings that say where packages come from; those in PIP_LISTS may have several values.
PIP_LISTS = ("extra-index-url", "find-links", "trusted-host")
PIP_SINGLE = ("index-url", "no-index", "timeout", "retries", "proxy")
#: Each distribution's releases: a mirror of one release serves the others of its family, but no other family.
FAMILIES = (
    ("bullseye", "bookworm", "trixie", "forky", "sid"),
    ("focal", "jammy", "noble", "resolute"),
)
#: Nodes have these keyrings already; others are sent with the settings.
DISTRIBUTION_KEYRINGS = "/usr/share/keyrings/"
NODE_KEYRINGS = "/etc/apt/keyrings/"


def split_credentials(url: str) -> tuple[str, str | None]:
    """Return the address without credentials, and an auth.conf line for them (None if there are none)."""
    parts = urlsplit(url)
    if parts.username is None:
        return url, None
    host = parts.hostname or ""
    port = f":{parts.port}" if parts.port else ""
    bare = urlunsplit((parts.scheme, f"{host}{port}", parts.path, parts.query, parts.fragment))
    machine = f"{parts.scheme}://{host}{port}{parts.path}"
    return bare, f"machine {machine} login {parts.username} password {parts.password or ''}"


def parse_one_line(text: str) -> list[tuple[dict[str, str], str, str, list[str]]]:
    """Parse the one-line format into (options, address, suite, components)."""
    entries = []
    for line in text.splitlines():
        match = re.match(r"^\s*deb\s+(?:\[(?P<options>[^\]]*)\]\s+)?(?P<rest>\S.*)$", line)
        if not match:
            continue
        options = dict(
            item.split("=", 1) for item in (match["options"] or "").split() if item.count("=") >= 1
        )
        fields = match["rest"].split("#")[0].split()
        if len(fields) >= 2:
            entries.append((options, fields[0], fields[1], fields[2:]))
    return entries


def parse_deb822(text: str) -> list[tuple[dict[str, str], str, str, list[str]]]:
    """Parse the deb822 format into (options, address, suite, components)."""
    entries = []
    for fields in Deb822.iter_paragraphs(text.splitlines()):
        if "deb" not in fields.get("Types", "").split() or fields.get("Enabled", "yes").lower() == "no":
            continue
        options = {}
        if (signed_by := fields.get("Signed-By", "")).startswith("/"):
            options["signed-by"] = signed_by.split()[0]
        if fields.get("Trusted", "no").lower() == "yes":
            options["trusted"] = "yes"
        for url in fields.get("URIs", "").split():
            for suite in fields.get("Suites", "").split():
                entries.append((options, url, suite, fields.get("Components", "").split()))
    return entries


def apt_settings(root: Path, release: str) -> dict[str, list[str]]:
    """Sources of the distribution itself, rewritten for `release`; sources of other vendors are left out."""
    files = [root / "sources.list", *sorted((root / "sources.list.d").glob("*"))]
    sources: list[str] = []
    auth: list[str] = []
    keyrings: set[str] = set()
    directories: set[str] = set()
    family = next((each for each in FAMILIES if release in each), ())
    for file in files:
        if not file.is_file() or file.suffix not in (".list", ".sources"):
            continue
        parse = parse_deb822 if file.suffix == ".sources" else parse_one_line
        for options, url, suite, components in parse(file.read_text(encoding="utf-8")):
            own = re.split(r"[-/]", suite)[0]
            if own not in family or "main" not in components:
                continue
            bare, line = split_credentials(url)
            if line and line not in auth:
                auth.append(line)
            if bare.startswith("file:"):
                directories.add(urlsplit(bare).path)
            keyring = options.get("signed-by", "")
            if keyring.startswith("/") and not keyring.startswith(DISTRIBUTION_KEYRINGS):
                keyrings.add(keyring)
                options = {**options, "signed-by": NODE_KEYRINGS + Path(keyring).name}
            option = " ".join(f"{name}={value}" for name, value in sorted(options.items()))
            prefix = f"deb [{option}] " if option else "deb "
            source = prefix + " ".join([bare, release + suite.removeprefix(own), *components])
            if source not in sources:
                sources.append(source)
    for file in sorted((root / "auth.conf.d").glob("*.conf")):
        auth.extend(line for line in file.read_text(encoding="utf-8").splitlines() if line.strip())
    return {
        "apt_sources": sources,
        "apt_auth": auth,
        "keyrings": sorted(keyrings),
        "directories": sorted(directories),
    }


def apt_proxies() -> list[str]:
    """Lines of apt configuration that set proxies, as apt itself reads them."""
    try:
        dump = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, check=True).stdout
    except (FileNotFoundError, subprocess.CalledProcessError):
        return []
    return [line for line in dump.splitlines() if re.match(r"^Acquire::https?::Proxy(::\S+)? ", line)]


def pip_settings(listing: str) -> tuple[str, list[str]]:
    """Turn the output of `pip config list` into a pip.conf for a node, and the local directories it names.

    Environment variables win over files, as in pip. A certificate bundle is replaced by the node's own,
    which holds the same added authorities.
    """
    values: dict[str, str] = {}
    scopes = ("global.", "install.", "download.", "wheel.", ":env:.")
    for scope in scopes:
        for line in listing.splitlines():
            name, _, raw = line.partition("=")
            if not name.startswith(scope):
                continue
            key = name.removeprefix(scope)
            value = raw.strip()
            if len(value) >= 2 and value[0] == value[-1] and value[0] in "'\"":
                value = value[1:-1].replace("\\n", "\n")
            values[key] = value
    lines = ["[global]", f"cert = {NODE_CA_BUNDLE}"]
    directories: list[str] = []
    for key in (*PIP_SINGLE, *PIP_LISTS):
        if key not in values:
            continue
        items = values[key].split() if key in PIP_LISTS else [values[key]]
        if not items:
            continue
        lines.append(
            f"{key} =" + ("".join(f"\n    {item}" for item in items) if len(items) > 1 else f" {items[0]}")
        )
        for item in items:
            path = urlsplit(item).path if item.startswith("file:") else item
            if path.startswith("/"):
                # The pages of a simple index point at files beside it.
                directories.append(str(Path(path).parent) if Path(path).name == "simple" else path)
    return "\n".join(lines) + "\n", [path for path in directories if Path(path).is_dir()]


def outermost(paths: list[str]) -> list[str]:
    """Drop directories that lie inside another one of the list."""
    resolved = sorted(set(paths))
    return [p for p in resolved if not any(p != q and p.startswith(q.rstrip("/") + "/") for q in resolved)]


def certificates(added: Path = Path("/usr/local/share/ca-certificates")) -> list[str]:
    """Certificate authorities that somebody added to this machine, or named in the environment."""
    found = sorted(str(path) for path in added.rglob("*.crt")) if added.is_dir() else []
    for name in ("PIP_CERT", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"):
        bundle = os.environ.get(name, "")
        if (
            bundle
            and Path(bundle).is_file()
            and not bundle.startswith("/etc/ssl/certs/")
            and bundle not in found
        ):
            found.append(bundle)
    return found


def own_pip() -> list[str]:
    """The machine's own pip, or else the virtual environment's, which reads the same settings."""
    for directory in os.get_exec_path():
        if (Path(directory) / "pip").is_file() and not directory.startswith(sys.prefix):
            return [str(Path(directory) / "pip")]
    return [sys.executable, "-m", "pip"]


def main() -> None:
    """Entry point of the module."""
    module = AnsibleModule(
        argument_spec={
            "release": {"type": "str", "required": True},
            "apt_root": {"type": "path", "default": "/etc/apt"},
            "pip": {"type": "list", "elements": "str"},
        },
        supports_check_mode=True,
    )
    settings = apt_settings(Path(module.params["apt_root"]), module.params["release"])
    pip = subprocess.run(
        [*(module.params["pip"] or own_pip()), "config", "list"], capture_output=True, text=True, check=False
    )
    if pip.returncode != 0:
        module.fail_json(
            msg=f"pip's settings could not be read ({pip.args[0]} config list: {pip.stderr.strip()})"
        )
    pip_conf, pip_directories = pip_settings(pip.stdout)
    environment = {
        name: os.environ[name]
        for base in PROXY_NAMES
        for name in (base, base.upper())
        if os.environ.get(name)
    }
    module.exit_json(
        changed=False,
        apt_sources=settings["apt_sources"],
        apt_auth=settings["apt_auth"],
        apt_conf=apt_proxies(),
        keyrings=[path for path in settings["keyrings"] if Path(path).is_file()],
        pip_conf=pip_conf,
        directories=outermost([*settings["directories"], *pip_directories]),
        certificates=certificates(),
        environment=environment,
    )


if __name__ == "__main__":
    main()
