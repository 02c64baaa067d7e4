"""Whose campaigns are whose: by the machines of the inventory in use, not by their names.

The machines of an inventory are noted beside the results whenever a command prepares the cluster, so that
commands which only read results need not ask the nodes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import RootModel, ValidationError

from experiments.campaign.campaign import campaigns, open_campaign
from experiments.campaign.identity import are_others
from experiments.cluster.provenance import inventory_in_use
from experiments.util.errors import UserError
from experiments.util.files import json_text, sha256, write_whole
from experiments.util.models import FrozenModel
from training.spec import explain

NOTES: Final = "machines.json"
CHOOSE_NODES: Final = ("TESTBED", "TESTBED_PREFIX")  # variables by which one inventory has several testbeds


class _Noted(FrozenModel):
    inventory: str  # its name, for people
    machines: dict[str, str]


class _Notes(RootModel[dict[str, _Noted]]):
    """By the digest of the inventory."""


def note_machines(root: Path, results: Path, inventory: str, machines: Mapping[str, str]) -> None:
    """Notes which machines the inventory in use has; nothing if none of them is known.

    Args:
        root: the checkout.
        results: the folder with the results of all matrices.
        inventory: its name.
        machines: digests of their ids, by node.

    Raises:
        UserError: the earlier notes are damaged.
    """
    key = _inventory(root)
    if key is None or not machines:
        return
    notes: dict[str, Any] = {name: each.model_dump() for name, each in _read(results).items()}
    write_whole(
        results / NOTES, json_text(notes | {key: {"inventory": inventory, "machines": dict(machines)}})
    )


def known_machines(root: Path, results: Path) -> dict[str, str]:
    """Digests of the ids of the inventory's machines, by node, as last noted; empty if they are not known.

    Raises:
        UserError: the notes are damaged.
    """
    noted = _read(results).get(_inventory(root) or "")
    return dict(noted.machines) if noted else {}


def newest_campaign(
    folder: Path, machines: Mapping[str, str], choose: str = "CAMPAIGN={}"
) -> tuple[Path, str | None]:
    """A matrix's newest campaign on these machines, and a sentence if that is not plainly the newest.

    A campaign whose machines are not known, as of earlier versions, may be of any, and a damaged one is for
    the caller to report.

    Args:
        folder: the matrix's, with at least one campaign.
        machines: digests of their ids, by node; empty = not known.
        choose: how to name a campaign; {} is its name.

    Raises:
        UserError: all campaigns are of other machines, or it is not known which of them are.
    """
    there = campaigns(folder)[::-1]
    newest, of = there[0].name, {each: _machines_of(each) for each in there}
    if not machines:
        unknown = "which machines this inventory has is not known before it is used (make plan)"
        known = [found for found in of.values() if found]
        if any(are_others(found, known[0]) for found in known):
            raise UserError(
                f"There are campaigns of {folder.name} of different machines, and {unknown}. Name one of "
                f"them; {choose.format(newest)} is the newest."
            )
        remark = f"The newest campaign of {folder.name} is taken, {newest}: {unknown}."
        return there[0], remark if known else None
    own = next((each for each in there if not are_others(of[each], machines)), None)
    how = f"{choose.format(newest)} chooses it"
    if own is None:
        raise UserError(
            f"No campaign of {folder.name} is of this inventory's machines. The newest, {newest}, is of "
            f"others: {how}."
        )
    if own == there[0]:
        return own, None
    return own, (
        f"The newest campaign of {folder.name}, {newest}, is of other machines than this inventory's "
        f"({how}): {own.name} is taken."
    )


def _machines_of(folder: Path) -> dict[str, str]:
    try:
        return open_campaign(folder).file.identity.machines
    except UserError:
        return {}


def _inventory(root: Path) -> str | None:
    """A digest of what chooses the machines of the inventory in use: its place, its hosts, its testbed."""
    path = inventory_in_use(root)
    if path is None or not path.exists():
        return None
    files = sorted(each for each in path.iterdir() if each.is_file()) if path.is_dir() else [path]
    parts = [str(path.resolve()), *(f"{name}={os.environ.get(name, '')}" for name in CHOOSE_NODES)]
    return sha256("\0".join([*parts, *(sha256(each.read_bytes()) for each in files)]).encode())


def _read(results: Path) -> dict[str, _Noted]:
    path = results / NOTES
    try:
        return _Notes.model_validate_json(path.read_bytes()).root
    except FileNotFoundError:
        return {}
    except ValidationError as error:
        raise UserError(
            f"{explain(error, str(path))} Remove it: each inventory's next `plan` or `run` notes its "
            "machines again."
        ) from error
