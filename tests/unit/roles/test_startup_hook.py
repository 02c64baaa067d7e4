"""The startup hook of Determined's runs: what it installs, from where, how it fails; pip is a stand-in."""

from __future__ import annotations

import functools
import subprocess
import threading
import zipfile
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jinja2
import pytest

from tests.standins.determined.agent import ENTRYPOINT
from tests.unit.roles.loading import ROOT, value_of

VARS = "roles/determined/vars/main.yml"
HOOK = ROOT / "roles/determined/templates/startup-hook.sh.j2"
REQUIREMENTS = ROOT / "roles/python_env/files/locks/environment.in"
STACKS = ("pyspark", "determined")
#: Installs a module for each requirement, unless one of them is broken.
PIP = """\
import pathlib, sys
print("pip", *sys.argv[1:])
options = dict(each.removeprefix("--").partition("=")[::2] for each in sys.argv[2:])
lines = pathlib.Path(options["requirement"]).read_text().splitlines()
if any(line.startswith("broken==") for line in lines):
    print("ERROR: No matching distribution found for broken==2", file=sys.stderr)
    sys.exit("a hint")
target = pathlib.Path(options["target"])
target.mkdir()
for line in lines:
    (target / (line.partition("==")[0] + ".py")).write_text(f"line = {line!r}")
"""
LOCKED = {name: f"{name}==2 --hash=sha256:{'0' * 64}" for name in ("alpha", "beta", "broken", "torch")}
#: In the place of the ranks: what they would import.
RANK = ["python3", "-c", "import alpha; print('rank', alpha.__file__, alpha.line)"]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[str]:
    """The address of a folder of wheels in a store."""
    folder = tmp_path / "store" / "wheels"
    folder.mkdir(parents=True)
    (folder / "requirements.txt").write_text("".join(f"{line}\n" for line in LOCKED.values()))
    handler = functools.partial(SimpleHTTPRequestHandler, directory=str(tmp_path / "store"))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/wheels"
    server.shutdown()
    server.server_close()


def started(
    folder: Path, store: str, libraries: list[str], **environment: str
) -> subprocess.CompletedProcess[str]:
    """A container of an experiment with this hook, as Determined starts it."""
    context, scratch = folder / "context", folder / "tmp"
    context.mkdir()
    scratch.mkdir()
    text = jinja2.Template(HOOK.read_text(encoding="utf-8"), keep_trailing_newline=True).render(
        ansible_managed="Ansible managed", determined_wheels=store, determined_hook_libraries=libraries
    )
    (context / "startup-hook.sh").write_text(text, encoding="utf-8")
    with zipfile.ZipFile(context / "pip-0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("pip/__main__.py", PIP)
    path = subprocess.run(["bash", "-c", "echo $PATH"], capture_output=True, text=True, check=True).stdout
    return subprocess.run(
        ["bash", "-c", ENTRYPOINT, "bash", *RANK],
        cwd=context,
        env={"PATH": path.strip(), "TMPDIR": str(scratch), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_ranks_import_what_the_hook_installed_in_the_locked_versions(tmp_path: Path, store: str) -> None:
    # A proxy of the container's is not asked for what is in the store.
    done = started(tmp_path, store, ["beta", "alpha"], http_proxy="http://127.0.0.1:9", PYTHONPATH="/before")
    assert done.returncode == 0, done.stderr
    pip, took, rank = done.stdout.splitlines()
    folder = tmp_path / "tmp/startup-hook"
    assert rank == f"rank {folder}/libraries/alpha.py {LOCKED['alpha']}"
    assert took.startswith("startup-hook.sh took ") and took.endswith(" s")
    assert (folder / "requirements.txt").read_text().splitlines() == [LOCKED["beta"], LOCKED["alpha"]]
    # Nothing from elsewhere, nothing that was not locked, and nothing that is there already.
    host = store.removeprefix("http://").removesuffix("/wheels")
    wanted = {"install", "--no-index", f"--find-links={store}/", f"--trusted-host={host}"}
    assert wanted | {"--no-deps", "--require-hashes", "--force-reinstall"} <= set(pip.split())
    assert f"++ export PYTHONPATH={folder}/libraries:/before" in done.stderr.splitlines()


@pytest.mark.parametrize(
    ("libraries", "place", "says"),
    [
        (["alpha", "broken"], "", "pip ended with 1: ERROR: No matching distribution found for broken==2"),
        (["gamma", "alpha", "delta"], "", "/wheels/ has no gamma and no delta"),
        (["alpha"], "/none", "/wheels/none/requirements.txt can't be read: HTTP Error 404"),
    ],
)
def test_a_hook_that_fails_ends_its_container_before_the_ranks_start(
    tmp_path: Path, store: str, libraries: list[str], place: str, says: str
) -> None:
    done = started(tmp_path, store + place, libraries)
    assert done.returncode == 1 and "rank" not in done.stdout and "took" not in done.stdout
    (error,) = (line for line in done.stderr.splitlines() if line.startswith("StartupHookError: "))
    assert says in error


def test_it_installs_what_the_environment_asks_for_beside_torch_and_the_stacks() -> None:
    asked, _, of_torch = REQUIREMENTS.read_text(encoding="utf-8").partition("# Dependencies of torch.\n")
    assert "networkx" in of_torch
    names = [line.partition("==")[0] for line in asked.splitlines() if not line.startswith("#")]
    assert set(STACKS) < set(names)
    found = value_of("determined_hook_libraries", VARS)
    assert found == [name for name in names if name not in STACKS]


@pytest.mark.parametrize(
    ("conditions", "asked"), [({"startup_hook": "none"}, False), ({"startup_hook": "install"}, True)]
)
def test_only_runs_and_searches_that_ask_for_it_have_it(conditions: dict[str, Any], asked: bool) -> None:
    wanted = ["--startup-hook", "/opt/trainbed/determined/startup-hook.sh"] if asked else []
    assert value_of("determined_run_hook", VARS, run_spec={"conditions": conditions}) == wanted
    assert value_of("determined_search_hook", VARS, search_spec={"conditions": conditions}) == wanted
    # Specifications of earlier runs don't name it.
    assert value_of("determined_search_hook", VARS, search_spec={"conditions": {}}) == []
