#!/usr/bin/python
"""Ansible module: a locked environment as wheels in a directory of the store, fetched once."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
---
module: locked_wheels
short_description: Fetch a locked environment as wheels, once
description:
  - Runs on the master with the distribution's own Python. pip makes the wheels from the lock and checks its
    hashes.
  - The directory appears only when complete. Besides the wheels it holds C(requirements.txt), with
    name==version and the SHA-256 of each wheel as fetched or built; C(DIGEST), the SHA-256 of the Python
    version and that file, which names the environment; C(fetched.json), the index that torch came from,
    without credentials; and C(extra/), wheels that are not part of the environment.
options:
  cache: {description: Directory that holds one directory for each lock., type: path, required: true}
  key: {description: Name of the lock's directory., type: str, required: true}
  state:
    description: Whether to fetch it or only look for it.
    type: str
    choices: [present, read]
    required: true
  lock: {description: "Requirements file with hashes of everything, torch included.", type: path}
  extra: {description: More requirements files for extra/., type: list, elements: path, default: []}
  torch_index:
    description:
      - The index to use if pip's own settings do not lead to the build of torch that the lock names.
      - Without credentials.
    type: str
  torch_login: {description: "The index's credentials, as name:password.", type: str, default: ""}
"""

EXAMPLES = r"""
- name: Fetch the wheels
  locked_wheels:
    cache: /var/cache/example
    key: 0123456789abcdef
    state: present
    lock: /srv/example/lock.txt
    torch_index: https://download.pytorch.org/whl/cpu
"""

RETURN = r"""
key: {description: Name of the directory., type: str, returned: always}
digest: {description: "Name of the environment; empty if there is none.", type: str, returned: always}
"""

CHUNK = 1 << 20


class Unavailable(Exception):
    """Something that the lock names is unavailable; the message is a sentence for the admin."""


def without_credentials(text: str) -> str:
    """Remove user and password from every address in `text`."""
    return re.sub(r"(\w+://)[^/\s@]+@", r"\1", text)


def sha256(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(CHUNK):
            digest.update(block)
    return digest.hexdigest()


def pip(environment: Path, log: Path, *arguments: str, extra_index: str = "") -> bool:
    """Run pip; its output goes to `log` without credentials. Returns whether it succeeded.

    `extra_index` takes the place of extra indexes in pip's settings.
    """
    # With a fixed date, a built wheel has the same bytes wherever it is built.
    variables = {**os.environ, "SOURCE_DATE_EPOCH": "315532800", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    if extra_index:  # not an argument, because it may hold credentials
        variables["PIP_EXTRA_INDEX_URL"] = extra_index
    done = subprocess.run(
        [str(environment / "bin/python"), "-m", "pip", *arguments],
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    with log.open("a", encoding="utf-8") as file:
        file.write(without_credentials(done.stdout))
    return done.returncode == 0


def last_error(log: Path) -> str:
    """The last line of the log that names an error."""
    lines = [line for line in log.read_text(encoding="utf-8").splitlines() if line.startswith("ERROR")]
    return lines[-1] if lines else "see the log"


def fetch_locked(environment: Path, log: Path, place: Path, lock: str, what: str) -> None:
    """Download what a lock names into `place`, checking each file against its hash.

    Raises:
        Unavailable: part of it is unavailable.
    """
    options = ("--no-deps", "--require-hashes", "--dest", str(place), "--requirement", lock)
    if not pip(environment, log, "download", *options):
        raise Unavailable(f"{what} cannot be fetched: {last_error(log)} (full output: {log})")


def reachable(url: str) -> bool:
    """Whether an index answers within seconds, if only to ask for a login, which pip has."""
    try:
        with urllib.request.urlopen(without_credentials(url).rstrip("/") + "/", timeout=5):
            return True
    except urllib.error.HTTPError:
        return True
    except (urllib.error.URLError, TimeoutError, OSError):
        return False


def divided(lock: str) -> tuple[str, str]:
    """The lock's entry of torch, and everything else in it.

    Raises:
        Unavailable: it has no torch, or no hash for it.
    """
    found = re.search(r"^torch==[^\n]*\n(?:[ \t]+[^\n]*\n)*", lock, re.MULTILINE)
    if found is None or "--hash=sha256:" not in found[0]:
        raise Unavailable(
            "The lock has no torch with a hash, and nothing is installed unchecked: write it with "
            "'make lock'."
        )
    return found[0], lock[: found.start()] + lock[found.end() :]


def fetch_torch(environment: Path, log: Path, store: Path, lock: Path, index: str) -> str:
    """Fetch the build of torch that a lock of it alone names; returns where from.

    Sources are those of pip's settings, else `index`.

    Raises:
        Unavailable: neither has the wheel with one of the lock's hashes.
    """
    options = ["--no-deps", "--only-binary", ":all:", "--require-hashes", "--dest", str(store)]
    arguments = ["download", *options, "--requirement", str(lock)]
    if pip(environment, log, *arguments):
        return "pip's settings"
    if reachable(index) and pip(environment, log, *arguments, extra_index=index):
        return index
    torch = lock.read_text(encoding="utf-8").split()[0]
    why = "does not have it" if reachable(index) else "does not answer"
    pypis = "(-e environment_variant=cu130, for CPUs, too, but not for GPUs older than Turing)"
    other = f", or choose the build that PyPI has {pypis}" if "+" in torch else ""
    said = f"{torch} is unavailable, both from the sources in pip's settings and from {index} (which {why})"
    if "DO NOT MATCH THE HASHES" in log.read_text(encoding="utf-8"):
        said = f"The wheel of {torch} that was found is not the lock's: its SHA-256 is another ({log})"
    raise Unavailable(
        f"{said}. No other build is used instead: put the wheel into a directory that pip's find-links names "
        f"on the master, set artifacts_torch_index to a mirror{other}."
    )


def build_sources(environment: Path, log: Path, store: Path) -> None:
    """Build wheels from source archives with the locked setuptools: one lock always gives the same bytes."""
    if not pip(
        environment,
        log,
        "install",
        "--no-index",
        "--no-deps",
        "--find-links",
        str(store),
        "--upgrade",
        "setuptools",
    ):
        raise Unavailable(f"the lock has no setuptools to build with: {last_error(log)} (full output: {log})")
    for source in sorted([*store.glob("*.tar.gz"), *store.glob("*.zip")]):
        if not pip(
            environment,
            log,
            "wheel",
            "--no-index",
            "--no-deps",
            "--no-build-isolation",
            "--wheel-dir",
            str(store),
            str(source),
        ):
            raise Unavailable(f"{source.name} cannot be built: {last_error(log)} (full output: {log})")
        source.unlink()


def distribution(wheel: Path) -> tuple[str, str]:
    """Name (normalised) and version of a wheel, from its file name."""
    name, version = wheel.name.split("-")[:2]
    return re.sub(r"[-_.]+", "-", name).lower(), version.replace("%2B", "+")


def fetch(asked: dict[str, Any], store: Path, log: Path) -> None:
    """Fill `store`.

    Raises:
        Unavailable: something cannot be fetched or built.
    """
    with tempfile.TemporaryDirectory() as scratch:
        environment = Path(scratch) / "venv"
        subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
        torch, rest = (Path(scratch) / name for name in ("torch.txt", "rest.txt"))
        for path, part in zip(
            (torch, rest), divided(Path(asked["lock"]).read_text(encoding="utf-8")), strict=True
        ):
            path.write_text(part, encoding="utf-8")
        index = asked["torch_index"]
        if asked["torch_login"]:
            index = index.replace("//", f"//{asked['torch_login']}@", 1)
        source = fetch_torch(environment, log, store, torch, index)
        fetch_locked(environment, log, store, str(rest), "the locked environment")
        build_sources(environment, log, store)
        for extra in asked["extra"]:
            fetch_locked(environment, log, store / "extra", extra, Path(extra).stem)
    wheels = sorted(store.glob("*.whl"))
    lines = []
    for wheel in wheels:
        name, version = distribution(wheel)
        lines.append(f"{name}=={version} --hash=sha256:{sha256(wheel)}")
    requirements = "\n".join(sorted(lines)) + "\n"
    (store / "requirements.txt").write_text(requirements, encoding="utf-8")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    digest = hashlib.sha256(f"python {version}\n{requirements}".encode()).hexdigest()
    (store / "DIGEST").write_text(digest + "\n", encoding="ascii")
    (store / "fetched.json").write_text(
        json.dumps({"torch_from": without_credentials(source)}) + "\n", encoding="utf-8"
    )


def digest_of(store: Path) -> str:
    """Name of the environment in a directory of the store; "" if there is none."""
    path = store / "DIGEST"
    return path.read_text(encoding="ascii").strip() if path.is_file() else ""


def fetch_once(asked: dict[str, Any]) -> bool:
    """Fetch the environment unless the store has it; returns whether it was fetched.

    Raises:
        Unavailable: something cannot be fetched or built.
    """
    cache, key = Path(asked["cache"]), asked["key"]
    with (cache / f"lock-{key}").open("w") as guard:
        # A fetch continues even if its caller is interrupted: wait for it.
        fcntl.flock(guard, fcntl.LOCK_EX)
        if digest_of(cache / key):
            return False
        # Start anew: what an interrupted fetch left behind may be incomplete.
        for leftover in cache.glob(f"{key}.*"):
            shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
        draft = cache / f"{key}.draft"
        draft.mkdir(parents=True)
        fetch(asked, draft, cache / f"{key}.log")
        draft.rename(cache / key)
        return True


def main() -> None:
    """Entry point of the module."""
    module = AnsibleModule(
        argument_spec={
            "cache": {"type": "path", "required": True},
            "key": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["present", "read"], "required": True},
            "lock": {"type": "path"},
            "extra": {"type": "list", "elements": "path", "default": []},
            "torch_index": {"type": "str"},
            "torch_login": {"type": "str", "default": "", "no_log": True},
        },
        required_if=[("state", "present", ["lock", "torch_index"])],
        supports_check_mode=True,
    )
    asked: dict[str, Any] = module.params
    store = Path(asked["cache"]) / asked["key"]
    changed = asked["state"] == "present" and not digest_of(store)
    if changed and not module.check_mode:
        try:
            changed = fetch_once(asked)
        except Unavailable as error:
            module.fail_json(msg=without_credentials(str(error)))
    module.exit_json(changed=changed, key=asked["key"], digest=digest_of(store))


if __name__ == "__main__":
    main()
