"""The git state of a folder. Standard library only: Ansible's plugins import it under any Python."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from experiments.util.errors import UserError

#: What runs are made of, in trainbed's checkout; whatever else has changed there can't affect one.
#: (The locks of the environment are in a role.)
MADE_OF: Final = ("training", "roles", "playbooks", "ansible.cfg")
TIMEOUT_S: Final = 60
#: A patch that `git apply` takes, and the same one whatever the user's configuration says.
DIFF: Final = (
    "diff",
    "--binary",
    "--full-index",
    "--no-color",
    "--no-ext-diff",
    "--no-textconv",
    "--no-renames",
    "--no-relative",
    "--src-prefix=a/",
    "--dst-prefix=b/",
    "--unified=3",
    "--inter-hunk-context=0",
    "--diff-algorithm=default",
    "--submodule=short",
)


def checkout_of(folder: Path) -> str | None:
    """The top of the checkout that a folder is in; None if it is in none."""
    return _answer(folder, "rev-parse", "--show-toplevel")


def revision_and_changes(
    folder: Path, parts: Sequence[str] = (".",), unignored: Sequence[str] = ()
) -> tuple[str | None, list[str] | None]:
    """The commit that is checked out, and the paths with uncommitted changes; None where git can't tell.

    Args:
        folder: a checkout, or a folder in one.
        parts: the files and folders in it whose changes count.
        unignored: those among them in which files count that git ignores.
    """
    revision = _answer(folder, "rev-parse", "--verify", "HEAD")
    status = _answer(
        folder, "status", "--porcelain", "-z", "--no-renames", "--untracked-files=all", "--", *parts
    )
    # Without parts, git would list all.
    others = (
        _answer(folder, "ls-files", "-z", "--others", "--full-name", "--", *unignored) if unignored else ""
    )
    if status is None or others is None:
        return revision, None
    return revision, sorted({entry[3:] for entry in _names(status)} | set(_names(others)))


def changes_as_patch(folder: Path, parts: Sequence[str] = (".",), unignored: Sequence[str] = ()) -> bytes:
    """The uncommitted changes as a patch, files that git does not know included.

    `git apply` takes it at the top of the checkout.

    Raises:
        UserError: git can't make it, all of it.
    """
    top = Path(os.fsdecode(_output(folder, "rev-parse", "--show-toplevel")).removesuffix("\n"))
    texts = [_output(folder, *DIFF, "HEAD", "--", *parts)]
    unknown = set(_listed(folder, "--exclude-standard", "--", *parts))
    if unignored:
        unknown |= set(_listed(folder, "--", *unignored))
    for name in sorted(unknown):
        if name.endswith("/"):
            raise UserError(
                f"{top / name} is a git repository in another one, so its content can't be kept with the "
                "campaign as uncommitted changes: move it elsewhere."
            )
        # Files that differ are its exit code 1.
        texts.append(_output(top, *DIFF, "--no-index", "--", "/dev/null", name, fine=(0, 1)))
    return b"".join(texts)


def _listed(folder: Path, *arguments: str) -> list[str]:
    return _names(os.fsdecode(_output(folder, "ls-files", "-z", "--others", "--full-name", *arguments)))


def _names(output: str) -> list[str]:
    return [name for name in output.split("\0") if name]


def _answer(folder: Path, *arguments: str) -> str | None:
    """What git says, without the line's end; None if it can't tell."""
    try:
        done = _git(folder, *arguments)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return os.fsdecode(done.stdout).removesuffix("\n") if done.returncode == 0 else None


def _output(folder: Path, *arguments: str, fine: Sequence[int] = (0,)) -> bytes:
    """What git prints.

    Raises:
        UserError: it fails.
    """
    try:
        done = _git(folder, *arguments)
    except OSError as error:
        said = error.strerror or str(error)
    except subprocess.TimeoutExpired:
        said = f"no answer within {TIMEOUT_S} s"
    else:
        # diff --no-index has the same code for a file that it can't read as for one that differs.
        if done.returncode in fine and (done.returncode == 0 or done.stdout):
            return done.stdout
        said = " ".join(os.fsdecode(done.stderr).split()) or f"exit code {done.returncode}"
    raise UserError(
        f"What is not committed in {folder} can't be kept with the campaign: git {arguments[0]} failed "
        f"({said}). Correct that, or commit the changes, and repeat the command."
    )


def _git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    # It goes before the command line's --unified.
    variables = {name: value for name, value in os.environ.items() if name != "GIT_DIFF_OPTS"}
    return subprocess.run(
        ["git", "-C", str(folder), *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=variables,
        timeout=TIMEOUT_S,
    )
