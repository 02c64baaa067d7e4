"""The model hub: reached within seconds, or reported as unreachable."""

from __future__ import annotations

import hashlib
import os
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from training.data.tables import Row
from training.errors import DataError, first_line

ANSWER_WITHIN: Final = 5.0  # s
COMMIT: Final = re.compile(r"[0-9a-f]{40}")
#: In the names of the hub's errors; what is private is not found.
REFUSED: Final = ("RepositoryNotFound", "DatasetNotFound", "RevisionNotFound", "GatedRepo")
OFFLINE: Final = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE")


def reach_hub() -> bool:
    """Check whether the hub answers; if it does not, tell its libraries to use only their cache.

    By default they would keep retrying for minutes. Call this before they are imported, which is when they
    read these settings. Returns whether they will ask the hub.
    """
    endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
    if any(os.environ.get(name, "") in ("1", "true", "True", "ON") for name in OFFLINE):
        return False
    try:
        request = urllib.request.Request(endpoint, method="HEAD")
        with urllib.request.urlopen(request, timeout=ANSWER_WITHIN):
            return True
    except urllib.error.HTTPError:  # it answered
        return True
    except OSError as error:
        reason = getattr(error, "reason", error)
        sys.stderr.write(f"The hub {endpoint} can't be reached ({reason}): using its local cache.\n")
    os.environ |= dict.fromkeys(OFFLINE, "1")
    return False


@dataclass(frozen=True)
class HubData:
    """A data set of the hub at one commit; its rows are read as they come over the network."""

    name: str
    config: str | None  # which of its parts
    commit: str
    streamed: bool  # or from the local cache
    otherwise: str  # what to do where it can't be had, in words

    @property
    def sha256(self) -> str:
        """Of name and commit, which decide its content."""
        return hashlib.sha256(f"{self.name} {self.commit}".encode()).hexdigest()

    @property
    def what(self) -> str:
        """It, in a sentence."""
        return f"The data set {self.name} of the hub (at {self.commit[:8]})"

    def rows(self, split: str, columns: Sequence[str]) -> Iterator[Row]:
        """The rows of a split, one after another.

        Raises:
            DataError: it can't be loaded, or lacks the split or a column.
        """
        import datasets

        number = 0
        try:
            loaded = datasets.load_dataset(
                self.name, self.config, split=split, revision=self.commit, streaming=self.streamed
            )
            for number, row in enumerate(loaded, start=1):
                if missing := [column for column in columns if column not in row]:
                    raise DataError(
                        f"{self.what} has no column {' or '.join(missing)}; it has {', '.join(row)}."
                    )
                yield f"row {number}", row
        except DataError:
            raise
        except Exception as error:  # whatever the hub's libraries raise
            raise DataError(hub_error(self.name, error, self.otherwise)) from error
        if not number:
            raise DataError(f"{self.what} has no rows in {split}.")


def find_hub_data(name: str, config: str | None, revision: str, otherwise: str) -> HubData:
    """A data set of the hub, at the commit that `revision` is at now.

    Args:
        name: on the hub.
        config: which of its parts, where it has several.
        revision: a commit, or a branch.
        otherwise: what to do where it can't be had, in words.

    Raises:
        DataError: the commit can't be found out.
    """
    commit, reached = find_commit("dataset", name, revision, otherwise)
    return HubData(name, config, commit, reached, otherwise)


def find_commit(kind: str, name: str, revision: str, otherwise: str) -> tuple[str, bool]:
    """The commit that a revision of something on the hub is at now, and whether the hub is reached.

    Args:
        kind: `dataset` or `model`.
        name: on the hub.
        revision: a commit, or a branch.
        otherwise: what to do where it can't be had, in words.

    Raises:
        DataError: the commit can't be found out.
    """
    reached = reach_hub()
    if COMMIT.fullmatch(revision):
        return revision, reached
    try:
        return _commit(kind, name, revision, reached), reached
    except Exception as error:  # whatever the hub's libraries raise
        raise DataError(hub_error(name, error, otherwise)) from error


def _commit(kind: str, name: str, revision: str, reached: bool) -> str:
    import huggingface_hub
    from huggingface_hub.file_download import repo_folder_name

    folder = repo_folder_name(repo_id=name, repo_type=kind)
    noted = Path(huggingface_hub.constants.HF_HUB_CACHE) / folder / "refs" / revision
    if reached:
        commit = str(huggingface_hub.HfApi().repo_info(name, revision=revision, repo_type=kind).sha)
        # The hub's libraries note that only where they are given a branch; it is for when the hub is away.
        noted.parent.mkdir(parents=True, exist_ok=True)
        noted.write_text(commit, encoding="ascii")
        return commit
    if not noted.is_file():
        raise FileNotFoundError(f"the cache does not know which commit {revision} is at")
    return noted.read_text(encoding="ascii").strip()


def hub_error(name: str, error: Exception, otherwise: str) -> str:
    """One sentence about something that the hub could not provide, with what would work."""
    reason = first_line(error).rstrip(".")
    if any(word in type(error).__name__ for word in REFUSED):
        return (
            f"{name} is not on the hub or needs a token ({type(error).__name__}: {reason:.200}): check "
            "name and revision, or give a token that may read it (HF_TOKEN_PATH; on a cluster "
            "dataset_token_file)."
        )
    return (
        f"{name} can't be loaded from the hub or its local cache ({type(error).__name__}: {reason:.200}): "
        f"check the network (HF_ENDPOINT names another hub), or {otherwise}."
    )
