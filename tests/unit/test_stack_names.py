"""Only a stack's own role, launcher, variables, pages and tests name it."""

from __future__ import annotations

import re
import subprocess

from experiments.util.paths import REPOSITORY

STACKS = sorted(path.parts[-3] for path in (REPOSITORY / "roles").glob("*/tasks/run.yml"))
#: PyTorch's package of hooks has the name of one, too, and so has an option of its compiler.
NAMED = re.compile(rf"(?<![a-z])(?<!\boptimize_)({'|'.join(STACKS)})(?![a-z]|_comm_hooks\b)", re.IGNORECASE)
#: Files that belong to a stack, and files that are about stacks by nature.
OWN = re.compile(
    rf"roles/({'|'.join(STACKS)})/"
    rf"|training/launchers/({'|'.join(STACKS)})\w*\.py"
    rf"|inventory/common/({'|'.join(STACKS)})\.yml"
    r"|roles/python_env/files/locks/|requirements/test\.txt"  # environments' inputs and resolved versions
    r"|experiments/matrices/"
    r"|experiments/search/"  # a search is submitted to the one stack that has searches
    r"|docs/|README\.md|CHANGELOG\.md|CITATION\.cff|CONTRIBUTING\.md|roles/README\.md|roles/\w+/README\.md"
    r"|tests/(benchmarks|data|unit|e2e|standins|gpu|nodes/stacks|conformance)/|tests/parts\.py"
)
#: Other files that may name a stack, each with the reason.
ALLOWED = {
    "experiments/analysis/dissertation.yml": "what the dissertation measured, stack by stack",
    "experiments/analysis/dissertation.py": "compares its tables with DDP, as the dissertation did",
    "experiments/analysis/dissertation_figures.py": "rebuilds its tables, which compare stacks with DDP",
    "experiments/report/sections/situations.yml": "its recommendations, which name stacks",
    "experiments/report/sections/settling.yml": "commands that would settle the rest, with matrices' names",
    "Makefile": "the option of `make provision` and `make test` for packages that were downloaded elsewhere",
    "inventory/common/cluster.yml": "the stacks that a cluster has unless its inventory says otherwise",
    "inventory/lab/group_vars/all/lab.yml": "the stacks of the worked example",
    "inventory/testbed/group_vars/all/testbed.yml": "the stacks of the testbed",
    "inventory/one-worker/group_vars/all/testbed.yml": "the same file, by a link",
    "playbooks/restore.yml": "a verb of the one stack that has a database",
    "pyproject.toml": "types and imports of the stacks' packages",
    "requirements/test.in": "the stacks' packages, for the tests of their launchers",
}


def names() -> dict[str, list[str]]:
    """Lines that name a stack, by file."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    found: dict[str, list[str]] = {}
    for name in listed:
        path = REPOSITORY / name
        if OWN.match(name) or not path.is_file() or path.suffix in {".png", ".parquet"}:
            continue
        lines = path.read_text(encoding="utf-8").splitlines()
        if said := [f"{at}: {line.strip()}" for at, line in enumerate(lines, start=1) if NAMED.search(line)]:
            found[name] = said
    return found


def test_nothing_else_names_a_stack() -> None:
    found = names()

    assert {name: lines for name, lines in found.items() if name not in ALLOWED} == {}
    assert set(ALLOWED) - set(found) == set(), "these no longer name a stack: take them off the list"
    assert len(ALLOWED) <= 13
