"""The locks of the training environment, and the command that writes them, against a stand-in index."""

from __future__ import annotations

import base64
import hashlib
import http.server
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.roles.loading import ROOT, load

LOCKS = ROOT / "roles/python_env/files/locks"
maker = load("roles/python_env/files/locks/make-locks")
wheels = load("roles/artifacts/library/locked_wheels.py")
SHIPPED = sorted(LOCKS.rglob("*-py*.txt"))
LOGIN = "somebody:secret"


def versions(path: Path) -> dict[str, str]:
    """What a lock pins, by name."""
    entries: dict[str, str] = maker.blocks(path.read_text(encoding="utf-8"))
    return {name: re.split(r"[ ;=]+", entry)[1] for name, entry in entries.items()}


def test_every_python_has_a_lock_of_each_shipped_variant() -> None:
    names = {f"{variant}-py{python}.txt" for variant in ("cpu", "cu130") for python in maker.PYTHONS}
    assert {path.name for path in LOCKS.glob("*.txt")} == names


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: str(path.relative_to(LOCKS).with_suffix("")))
def test_a_shipped_lock_has_a_hash_for_everything_and_its_variants_torch(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    entries = maker.blocks(text)
    assert "".join(entries.values()) == text
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}", entry) for entry in entries.values())
    variant, python = path.stem.split("-py")
    assert versions(path)["torch"] == maker.TORCH[variant]
    assert maker.checked(text, variant) == text
    torch, rest = wheels.divided(text)
    assert maker.blocks(torch).keys() == {"torch"} and "torch" not in maker.blocks(rest)
    assert python in maker.PYTHONS


@pytest.mark.parametrize("python", maker.PYTHONS)
def test_environments_differ_in_torchs_build_alone(python: str) -> None:
    cpu, cuda = (versions(LOCKS / f"{variant}-py{python}.txt") for variant in ("cpu", "cu130"))
    assert {name for name in cpu if cuda.get(name) != cpu[name]} == {"torch"}
    more = {name for name in cuda if name not in cpu}
    assert all(re.match(r"nvidia-|cuda-|triton$", name) for name in more) and len(more) > 10


@pytest.mark.parametrize("name", maker.BESIDE)
def test_an_environment_beside_the_first_has_other_versions_of_what_it_asks_for_alone(name: str) -> None:
    """make-locks --beside writes its locks again, as after an upgrade of the first's."""
    locks = {path.name: path for path in SHIPPED if path.parent.name == name}
    assert set(locks) == {
        f"{variant}-py{python}.txt" for variant in ("cpu", "cu130") for python in maker.BESIDE[name]
    }
    asked = dict(line.split("==") for line in maker.requested(name))
    for file, path in locks.items():
        first, found = versions(LOCKS / file), versions(path)
        assert found.keys() == first.keys()
        # py4j: pyspark asks for one version of it.
        assert {each for each in found if found[each] != first[each]} == {*asked, "py4j"}
        assert {each: found[each] for each in asked} == asked


def test_a_lock_without_torchs_hash_is_not_installed() -> None:
    with pytest.raises(wheels.Unavailable, match="no torch with a hash, and nothing is installed unchecked"):
        wheels.divided("numpy==1 \\\n    --hash=sha256:00\ntorch==2.13.0+cpu\n")


def sha256(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def wheel(folder: Path, name: str, version: str, requires: tuple[str, ...] = ()) -> None:
    """Write a stand-in for a package: metadata alone."""
    inside = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    metadata += "".join(f"Requires-Dist: {each}\n" for each in requires)
    tag = "py3-none-any"
    with zipfile.ZipFile(folder / f"{name}-{version}-{tag}.whl", "w") as file:
        file.writestr(f"{inside}/METADATA", metadata)
        file.writestr(f"{inside}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n")
        file.writestr(f"{inside}/RECORD", "")


class StandInIndex(http.server.SimpleHTTPRequestHandler):
    """A package index: /<index>/<package>/ lists the wheels in the folder <index>. One takes a login."""

    def do_GET(self) -> None:
        said = self.headers.get("Authorization")
        if self.path.startswith("/torch") and said != f"Basic {base64.b64encode(LOGIN.encode()).decode()}":
            self.send_error(401)
        elif self.path.endswith("/"):
            index, package = self.path.strip("/").split("/")
            files = sorted((Path(self.directory) / index).glob(f"{package.replace('-', '_')}-*.whl"))
            if files:
                links = "".join(
                    f'<a href="../{file.name.replace("+", "%2B")}#sha256={sha256(file)}">{file.name}</a>\n'
                    for file in files
                )
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.end_headers()
                self.wfile.write(f"<!DOCTYPE html><html><body>\n{links}</body></html>".encode())
            else:
                self.send_error(404)
        else:
            super().do_GET()

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


@pytest.fixture
def indexes(tmp_path: Path) -> Iterator[str]:
    """Address of two stand-ins: /pypi has all but one build of torch, /torch that one, behind a login."""
    for index in ("pypi", "torch"):
        (tmp_path / "indexes" / index).mkdir(parents=True)
    wheel(tmp_path / "indexes/pypi", "numpy", "1.0")
    wheel(tmp_path / "indexes/pypi", "numpy", "2.0")
    wheel(tmp_path / "indexes/pypi", "nvidia_cublas_cu12", "12.6.4")
    wheel(tmp_path / "indexes/pypi", "torch", "2.13.0", ("cuda-toolkit==12.9",))
    wheel(tmp_path / "indexes/pypi", "cuda_toolkit", "12.9")
    wheel(tmp_path / "indexes/torch", "torch", "2.13.0+cu126", ("nvidia-cublas-cu12==12.6.4",))
    # An index of torch's builds has other packages, too, which must not come from it.
    wheel(tmp_path / "indexes/torch", "numpy", "9.0")

    class Handler(StandInIndex):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments, directory=str(tmp_path / "indexes"))  # type: ignore[arg-type]

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the command, with one package to lock and a lock that prefers its older version."""
    place = tmp_path / "locks"
    place.mkdir()
    shutil.copy2(LOCKS / "make-locks", place)
    (place / "environment.in").write_text("# What is wanted.\nnumpy\n", encoding="utf-8")
    old = "numpy==1.0 \\\n    --hash=sha256:" + "0" * 64 + "\n"
    (place / "cpu-py3.12.txt").write_text(old, encoding="utf-8")
    return place


def make(folder: Path, index: str, *arguments: str, torch: str) -> subprocess.CompletedProcess[str]:
    """Call the command with the stand-ins as its indexes."""
    settings = {"UV_DEFAULT_INDEX": f"http://{index}/pypi", "TORCH_INDEX": torch, "UV_NO_CONFIG": "1"}
    return subprocess.run(
        [sys.executable, str(folder / "make-locks"), *arguments],
        env={**os.environ, **settings, "no_proxy": "127.0.0.1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def lock_with_torch(folder: Path, variant: str, more: str = "") -> str:
    """Write a variant's lock of numpy and torch, and what else it has; returns its text."""
    entries = [f"numpy==1.0 \\\n    --hash=sha256:{'0' * 64}\n", more]
    entries.append(f"torch=={maker.TORCH[variant]} \\\n    --hash=sha256:{'1' * 64}\n")
    (folder / f"{variant}-py3.12.txt").write_text("".join(entries), encoding="utf-8")
    return "".join(entries)


def given_by_make(*variables: str) -> list[str]:
    """The arguments that `make lock` gives the command."""
    shown = subprocess.run(
        ["make", "--dry-run", "lock", *variables],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name not in ("VARIANT", "ADD", "ARGS")},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    (arguments,) = re.findall(r"locks/make-locks\b(.*)", shown)
    return shlex.split(arguments)


def test_a_build_that_only_torchs_index_has_is_locked_with_its_hash(
    indexes: str, folder: Path, tmp_path: Path
) -> None:
    own = tmp_path / "inventory/locks"
    asked = ("cu126", "--python", "3.12", "--into", str(own))
    done = make(folder, indexes, *asked, torch=f"http://{LOGIN}@{indexes}/torch")
    assert done.returncode == 0, done.stderr
    assert [path.name for path in own.iterdir()] == ["cu126-py3.12.txt"]
    text = (own / "cu126-py3.12.txt").read_text(encoding="utf-8")
    assert "secret" not in text
    assert versions(own / "cu126-py3.12.txt") == {
        "numpy": "1.0",
        "nvidia-cublas-cu12": "12.6.4",
        "torch": "2.13.0+cu126",
    }
    (file,) = (tmp_path / "indexes/torch").glob("torch-*")
    assert f"--hash=sha256:{sha256(file)}" in maker.blocks(text)["torch"]


def test_an_index_that_does_not_answer_is_named_without_its_login(folder: Path, indexes: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        silent = f"127.0.0.1:{free.getsockname()[1]}"
    done = make(folder, indexes, "cu126", "--python", "3.12", torch=f"http://{LOGIN}@{silent}/whl")
    assert done.returncode == 1
    assert re.fullmatch(
        rf"make lock: the index http://{silent}/whl does not answer \(.*Connection refused\), "
        r"and only it has torch==2\.13\.0\+cu126\n",
        done.stderr,
    )
    assert not (folder / "cu126-py3.12.txt").exists()


def test_a_wrong_login_is_said(folder: Path, indexes: str) -> None:
    done = make(folder, indexes, "cu126", "--python", "3.12", torch=f"http://{indexes}/torch")
    assert done.returncode == 1 and "does not answer (HTTP 401)" in done.stderr


def test_another_cuda_under_the_same_version_is_refused(folder: Path, indexes: str) -> None:
    done = make(folder, indexes, "cu130", "--python", "3.12", torch="unused")
    assert done.returncode == 1
    assert "has torch 2.13.0 for CUDA 12.9, which is not the variant cu130" in done.stderr


def test_torchs_hash_stays_where_its_index_is_silent(folder: Path, indexes: str) -> None:
    entry = f"torch=={maker.TORCH['cpu']} \\\n    --hash=sha256:{'1' * 64}\n"
    with (folder / "cpu-py3.12.txt").open("a", encoding="utf-8") as file:
        file.write(entry)
    done = make(folder, indexes, "cpu", "--python", "3.12", torch="http://127.0.0.1:9/whl")
    assert done.returncode == 0, done.stderr
    assert maker.blocks((folder / "cpu-py3.12.txt").read_text(encoding="utf-8"))["torch"] == entry
    assert versions(folder / "cpu-py3.12.txt")["numpy"] == "2.0"


def test_an_unknown_variant_is_said(folder: Path, indexes: str) -> None:
    done = make(folder, indexes, "cu999", torch="unused")
    assert done.returncode == 2
    assert done.stderr == "make lock: there is no variant 'cu999': choose one of cpu, cu126, cu130.\n"


def test_a_library_is_added_and_every_other_pin_stays(folder: Path, indexes: str, tmp_path: Path) -> None:
    wheel(tmp_path / "indexes/pypi", "peft", "0.19", ("numpy", "safetensors", "torch>=1.13"))
    wheel(tmp_path / "indexes/pypi", "safetensors", "0.7")
    before = lock_with_torch(folder, "cpu")
    for _ in range(2):  # again: nothing is there twice
        done = make(folder, indexes, "--add", "peft", torch="http://127.0.0.1:9/whl")
        assert (done.returncode, done.stdout) == (0, "Added to cpu-py3.12.txt.\n"), done.stderr
        entries = maker.blocks((folder / "cpu-py3.12.txt").read_text(encoding="utf-8"))
        assert list(entries) == ["numpy", "peft", "safetensors", "torch"]
        assert entries["numpy"] + entries["torch"] == before
        assert (folder / "environment.in").read_text(encoding="utf-8") == "# What is wanted.\nnumpy\npeft\n"


@pytest.mark.parametrize("variable", [(), ("VARIANT=cu126",)], ids=["every variant", "one variant"])
def test_make_adds_a_library_to_every_variant_unless_one_is_named(
    variable: tuple[str, ...], folder: Path, indexes: str, tmp_path: Path
) -> None:
    wheel(tmp_path / "indexes/pypi", "peft", "0.19", ("numpy", "torch>=1.13"))
    cublas = f"nvidia-cublas-cu12==12.6.4 \\\n    --hash=sha256:{'2' * 64}\n"
    before = {"cpu": lock_with_torch(folder, "cpu"), "cu126": lock_with_torch(folder, "cu126", cublas)}
    done = make(folder, indexes, *given_by_make("ADD=peft", *variable), torch="http://127.0.0.1:9/whl")
    assert done.returncode == 0, done.stderr
    for variant, lock in before.items():
        expected = {"peft"} if variant == "cu126" or not variable else set()
        entries = maker.blocks((folder / f"{variant}-py3.12.txt").read_text(encoding="utf-8"))
        assert entries.keys() - maker.blocks(lock).keys() == expected
        assert "".join(entry for name, entry in entries.items() if name not in expected) == lock


def test_make_writes_the_locks_of_cpu_if_no_variant_is_named(folder: Path, indexes: str) -> None:
    lock_with_torch(folder, "cpu")
    lock_with_torch(folder, "cu126")
    given = (*given_by_make(), "--python", "3.12")
    done = make(folder, indexes, *given, torch="http://127.0.0.1:9/whl")
    assert done.returncode == 0, done.stderr
    assert versions(folder / "cpu-py3.12.txt")["numpy"] == "2.0"
    assert versions(folder / "cu126-py3.12.txt")["numpy"] == "1.0"


def test_a_library_that_needs_another_torch_is_refused(folder: Path, indexes: str, tmp_path: Path) -> None:
    wheel(tmp_path / "indexes/pypi", "peft", "0.19", ("torch>=99",))
    before = lock_with_torch(folder, "cpu")
    done = make(folder, indexes, "--add", "peft", torch="unused")
    assert done.returncode == 1 and "torch>=99" in done.stderr
    assert (folder / "cpu-py3.12.txt").read_text(encoding="utf-8") == before


@pytest.fixture
def beside(folder: Path) -> Path:
    """A lock of the first environment, which has numpy's newer version, and what the second one asks for."""
    (folder / "cpu-py3.12.txt").unlink()
    entries = [f"numpy==2.0 \\\n    --hash=sha256:{'0' * 64}\n"]
    entries.append(f"torch=={maker.TORCH['cpu']} \\\n    --hash=sha256:{'1' * 64}\n")
    (folder / "cpu-py3.11.txt").write_text("".join(entries), encoding="utf-8")
    (folder / "spark35").mkdir()
    (folder / "spark35/environment.in").write_text("# Instead.\nnumpy==1.0\n", encoding="utf-8")
    return folder


def test_an_environment_beside_the_first_is_locked_and_kept_in_step(
    beside: Path, indexes: str, tmp_path: Path
) -> None:
    first, second = beside / "cpu-py3.11.txt", beside / "spark35/cpu-py3.11.txt"
    before = first.read_text(encoding="utf-8")
    done = make(beside, indexes, "--beside", "spark35", torch="unused")
    assert (done.returncode, done.stdout) == (0, "Wrote spark35/cpu-py3.11.txt.\n"), done.stderr
    entries = [maker.blocks(path.read_text(encoding="utf-8")) for path in (first, second)]
    assert first.read_text(encoding="utf-8") == before and entries[0]["torch"] == entries[1]["torch"]
    assert (versions(first)["numpy"], versions(second)["numpy"]) == ("2.0", "1.0")

    wheel(tmp_path / "indexes/pypi", "peft", "0.19", ("numpy", "torch>=1.13"))
    done = make(beside, indexes, "--add", "peft", torch="unused")
    assert done.stdout == "Added to cpu-py3.11.txt, spark35/cpu-py3.11.txt.\n", done.stderr
    assert versions(second) == versions(first) | {"numpy": "1.0"} and versions(first)["peft"] == "0.19"

    wheel(tmp_path / "indexes/pypi", "peft", "0.20", ("numpy", "torch>=1.13"))
    done = make(beside, indexes, "cpu", "--python", "3.11", torch="http://127.0.0.1:9/whl")
    assert done.returncode == 0, done.stderr
    assert versions(second) == versions(first) | {"numpy": "1.0"} and versions(first)["peft"] == "0.20"


def test_an_environment_beside_the_first_is_for_some_pythons_alone(beside: Path, indexes: str) -> None:
    done = make(beside, indexes, "--beside", "spark35", "--python", "3.12", torch="unused")
    assert (done.returncode, done.stderr) == (
        1,
        "make lock: there are no locks that those of spark35 could be made from, which is for Python 3.11: "
        "make them first, without --beside.\n",
    )
    done = make(beside, indexes, "--beside", "other", torch="unused")
    assert done.returncode == 2
    assert done.stderr == "make lock: there is no environment 'other' beside the first: choose spark35.\n"


def test_the_newest_libraries_are_locked_beside_the_same_torch(
    folder: Path, indexes: str, tmp_path: Path
) -> None:
    wheel(tmp_path / "indexes/pypi", "sympy", "1.0")
    wheel(tmp_path / "indexes/pypi", "sympy", "2.0")
    wanted = f"numpy\n{maker.TORCHS}\nsympy\n"
    (folder / "environment.in").write_text(wanted, encoding="utf-8")
    more = f"nvidia-cublas-cu12==12.6.4 \\\n    --hash=sha256:{'2' * 64}\n"
    more += f"sympy==1.0 \\\n    --hash=sha256:{'3' * 64}\n"
    before = lock_with_torch(folder, "cu126", more)
    own = tmp_path / "inventory/locks"
    asked = given_by_make("VARIANT=cu126", "LIBRARIES=newest", f"ARGS=--into '{own}'")
    done = make(folder, indexes, *asked, torch="unused")
    assert (done.returncode, done.stdout) == (0, f"Wrote newest/cu126-py3.12.txt in {own}.\n"), done.stderr
    assert (folder / "cu126-py3.12.txt").read_text(encoding="utf-8") == before
    assert [path.name for path in own.rglob("*.txt")] == ["cu126-py3.12.txt"]
    text = (own / "newest/cu126-py3.12.txt").read_text(encoding="utf-8")
    assert re.match(
        r"# Resolved on \d{4}-\d\d-\d\d \(UTC\): the newest libraries of that day, beside the torch of "
        r"cu126-py3\.12\.txt\.\n",
        text,
    )
    found, first = maker.blocks(text), maker.blocks(before)
    assert versions(own / "newest/cu126-py3.12.txt")["numpy"] == "2.0"
    # What torch needs stays if it can: torch, which knows what is too new for it, may be out of reach.
    assert versions(own / "newest/cu126-py3.12.txt")["sympy"] == "1.0"
    assert {name: found[name] for name in ("torch", "nvidia-cublas-cu12")} == {
        name: first[name] for name in ("torch", "nvidia-cublas-cu12")
    }
    assert wheels.divided(text)[0] == first["torch"]


def test_newest_libraries_without_a_first_lock_or_of_another_name_are_refused(
    folder: Path, indexes: str
) -> None:
    done = make(folder, indexes, "cu126", "--libraries", "newest", "--into", str(folder), torch="unused")
    assert (done.returncode, done.stderr) == (
        1,
        "make lock: there are no locks of cu126 whose torch the newest libraries could be beside: make them "
        "first, without LIBRARIES.\n",
    )
    done = make(folder, indexes, "--libraries", "newest", "--into", str(folder), torch="unused")
    assert (
        done.stderr == "make lock: the lock cpu-py3.12.txt has no torch: make it anew, without LIBRARIES.\n"
    )
    done = make(folder, indexes, "--libraries", "new", torch="unused")
    assert done.returncode == 2
    assert done.stderr == "make lock: there are no libraries 'new': LIBRARIES is newest or empty.\n"


def test_locks_of_the_newest_libraries_are_kept_with_the_inventory_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANSIBLE_INVENTORY", raising=False)
    assert maker.own_locks() == ROOT / "inventory/testbed/locks"
    for name in (tmp_path, tmp_path / "hosts.yml"):
        monkeypatch.setenv("ANSIBLE_INVENTORY", str(name))
        assert maker.own_locks() == tmp_path / "locks"
    monkeypatch.setenv("ANSIBLE_INVENTORY", "one,two")
    with pytest.raises(maker.Unavailable, match="the inventory is 'one,two', and not one file or folder"):
        maker.own_locks()


def test_packages_of_cuda_are_refused_in_a_lock_without_it(
    folder: Path, indexes: str, tmp_path: Path
) -> None:
    wheel(tmp_path / "indexes/pypi", "fast", "1.0", ("nvidia-cublas-cu12", "nvidia-ml-py"))
    wheel(tmp_path / "indexes/pypi", "nvidia_ml_py", "13.0")
    before = lock_with_torch(folder, "cpu")
    done = make(folder, indexes, "--add", "fast", torch="unused")
    assert (done.returncode, done.stderr) == (
        1,
        "make lock: the lock of cpu would get packages of CUDA (nvidia-cublas-cu12), which a build of torch "
        "without it has no use for: ask for another variant.\n",
    )
    assert (folder / "cpu-py3.12.txt").read_text(encoding="utf-8") == before


def test_torchs_needs_do_not_come_from_another_build_where_its_index_is_silent(
    folder: Path, indexes: str, tmp_path: Path
) -> None:
    wheel(tmp_path / "indexes/pypi", "peft", "0.19", ("torch>=1.13",))
    (folder / "environment.in").write_text("numpy\npeft\n", encoding="utf-8")
    lock_with_torch(folder, "cpu")
    done = make(folder, indexes, "cpu", "--python", "3.12", torch="http://127.0.0.1:9/whl")
    assert done.returncode == 0, done.stderr
    assert versions(folder / "cpu-py3.12.txt").keys() == {"numpy", "peft", "torch"}


def test_a_library_that_needs_another_version_of_what_is_pinned_is_refused(
    folder: Path, indexes: str, tmp_path: Path
) -> None:
    wheel(tmp_path / "indexes/pypi", "peft", "0.19", ("numpy>=2",))
    before = (folder / "cpu-py3.12.txt").read_text(encoding="utf-8")
    done = make(folder, indexes, "--add", "peft", torch="unused")
    assert done.returncode == 1
    assert "Every other pin was to stay; make lock without ADD resolves all anew." in done.stderr
    assert (folder / "cpu-py3.12.txt").read_text(encoding="utf-8") == before
    assert "peft" not in (folder / "environment.in").read_text(encoding="utf-8")


@pytest.fixture
def fetching(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, indexes: str) -> Path:
    """An empty store; pip's settings name the first stand-in, and a folder with a CPU build of torch."""
    local = tmp_path / "local"
    local.mkdir()
    wheel(local, "torch", "2.13.0+cpu")
    for name in [each for each in os.environ if each.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", f"http://{indexes}/pypi")
    monkeypatch.setenv("PIP_FIND_LINKS", str(local))
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    (tmp_path / "store").mkdir()
    return tmp_path


def fetch(place: Path, version: str, file: Path, index: str) -> str:
    """Fetch torch by a lock that pins a version and the hash of a file; where it came from."""
    lock = place / "torch.txt"
    lock.write_text(f"torch=={version} \\\n    --hash=sha256:{sha256(file)}\n", encoding="utf-8")
    environment = Path(sys.executable).parent.parent
    found: str = wheels.fetch_torch(environment, place / "log", place / "store", lock, index)
    return found


def test_a_local_wheel_of_another_build_is_not_taken_for_the_locks(fetching: Path) -> None:
    (cuda,) = (fetching / "indexes/pypi").glob("torch-*")
    assert fetch(fetching, "2.13.0", cuda, "http://127.0.0.1:9/whl") == "pip's settings"
    assert [path.name for path in (fetching / "store").iterdir()] == [cuda.name]


def test_torch_comes_from_a_local_wheel_or_else_from_its_index(fetching: Path, indexes: str) -> None:
    (local,) = (fetching / "local").iterdir()
    assert fetch(fetching, "2.13.0+cpu", local, "http://127.0.0.1:9/whl") == "pip's settings"
    (other,) = (fetching / "indexes/torch").glob("torch-*")
    index = f"http://{LOGIN}@{indexes}/torch"
    assert fetch(fetching, "2.13.0+cu126", other, index) == index
    assert len(list((fetching / "store").iterdir())) == 2


def test_a_wheel_that_is_not_the_locks_is_refused(fetching: Path) -> None:
    (other,) = (fetching / "indexes/pypi").glob("torch-*")
    with pytest.raises(wheels.Unavailable, match=r"that was found is not the lock's: its SHA-256 is another"):
        fetch(fetching, "2.13.0+cpu", other, "http://127.0.0.1:9/whl")
    assert list((fetching / "store").iterdir()) == []


def test_a_build_that_is_nowhere_is_said_with_the_way_out(fetching: Path) -> None:
    (local,) = (fetching / "local").iterdir()
    local.rename(fetching / local.name)
    with pytest.raises(wheels.Unavailable) as raised:
        fetch(fetching, "2.13.0+cpu", fetching / local.name, "http://127.0.0.1:9/whl/cpu")
    assert str(raised.value) == (
        "torch==2.13.0+cpu is unavailable, both from the sources in pip's settings and from "
        "http://127.0.0.1:9/whl/cpu (which does not answer). No other build is used instead: put the wheel "
        "into a directory that pip's find-links names on the master, set artifacts_torch_index to a mirror, "
        "or choose the build that PyPI has (-e environment_variant=cu130, for CPUs, too, but not for GPUs "
        "older than Turing)."
    )


PLAY = """\
- hosts: master
  gather_facts: false
  become: false
  tasks:
    - ansible.builtin.set_fact:
        ansible_facts: {python: {version: {major: 3, minor: 12}}}
    - ansible.builtin.import_role: {name: artifacts, tasks_from: lock}
    - ansible.builtin.debug: {msg: "It is {{ artifacts_lock_told }}."}
"""


def look(site: Path, variant: str, torch: str, index: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Play the role's search for a lock, for an inventory in a folder of its own."""
    site.mkdir(exist_ok=True)
    (site / "hosts.yml").write_text("master: {hosts: {one: {ansible_connection: local}}}\n", encoding="utf-8")
    (site.parent / "look.yml").write_text(PLAY, encoding="utf-8")
    said = ["-e", f"artifacts_variant={variant}", "-e", f"artifacts_torch_index={torch}"]
    settings = {"UV_DEFAULT_INDEX": f"http://{index}/pypi", "UV_NO_CONFIG": "1", "no_proxy": "127.0.0.1"}
    settings["ANSIBLE_CONFIG"] = str(ROOT / "ansible.cfg")
    return subprocess.run(
        ["ansible-playbook", "-i", str(site), str(site.parent / "look.yml"), *said, *options],
        cwd=ROOT,
        env={**os.environ, **settings},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def words(done: subprocess.CompletedProcess[str]) -> str:
    """What a command said, with its line breaks as spaces."""
    return re.sub(r"\s+", " ", done.stdout + done.stderr)


def test_a_lock_that_trainbed_has_is_taken(indexes: str, tmp_path: Path) -> None:
    done = look(tmp_path / "site", "cu130", "http://127.0.0.1:9/whl", indexes)
    assert done.returncode == 0 and "It is cu130-py3.12." in words(done), words(done)
    assert not (tmp_path / "site/locks").exists()


def test_a_lock_that_nobody_has_is_resolved_once_and_kept_with_the_inventory(
    indexes: str, tmp_path: Path
) -> None:
    # The stand-ins have few of the environment's packages: the command gets a folder that asks for fewer.
    shipped = tmp_path / "locks"
    shipped.mkdir()
    shutil.copy2(LOCKS / "make-locks", shipped)
    (shipped / "environment.in").write_text("numpy\n", encoding="utf-8")
    torch, few = f"http://{LOGIN}@{indexes}/torch", ("-e", f"artifacts_locks={shipped}")
    site = tmp_path / "site"
    checked = look(site, "cu126", torch, indexes, *few, "--check")
    assert f"would be resolved from http://{indexes}/torch and kept in {site}/locks" in words(checked)
    assert not (site / "locks").exists()
    first = look(site, "cu126", torch, indexes, *few)
    assert first.returncode == 0, words(first)
    content = (site / "locks/cu126-py3.12.txt").read_bytes()
    label = f"cu126-py3.12 of the inventory, {hashlib.sha256(content).hexdigest()[:12]}"
    assert f"It is {label}." in words(first)
    assert "secret" not in words(first) and "Unable to parse" not in words(first)
    # From now on the index is not needed.
    again = look(site, "cu126", "http://127.0.0.1:9/whl", indexes, *few)
    assert f"It is {label}." in words(again) and "changed=0" in words(again)
    assert words(again).count("Resolve the lock") == 0


def test_without_lock_and_index_one_sentence_names_both_and_the_ways_out(
    indexes: str, tmp_path: Path
) -> None:
    site = tmp_path / "site"
    done = look(site, "cu126", "http://127.0.0.1:9/whl", indexes)
    assert done.returncode != 0 and "changed=0" in words(done)
    assert (
        "There is no lock cu126-py3.12.txt for the environment that the nodes' Python and GPUs need, and it "
        "can't be made here, so nothing was changed: the index http://127.0.0.1:9/whl does not answer "
        "([Errno 111] Connection refused), and only it has torch==2.13.0+cu126. Put a lock made elsewhere "
        f"('make lock VARIANT=cu126') into {site}/locks, set artifacts_torch_index to a mirror, or choose "
        "another environment_variant, if the GPUs allow one: cpu and cu130 have locks."
    ) in words(done)
