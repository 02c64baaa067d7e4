"""The campaigns that there are: how far each came, and why it would not go on with the checkout as it is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from experiments.campaign.campaign import Campaign, campaigns, open_campaign
from experiments.campaign.code_archive import launching_digest, training_archive
from experiments.campaign.machines import known_machines
from experiments.matrix.loading import MATRICES, load_matrix
from experiments.util.errors import UserError
from experiments.util.files import sha256
from experiments.util.screen import Screen
from experiments.util.words import listed

COLUMNS: Final = (
    "campaign",
    "inventory",
    "done",
    "missing",
    "not possible",
    "state",
    "matches this checkout",
)
ABOUT: Final = (
    "A campaign goes on while the cluster matches, too: its nodes, environment, image, data and settings are "
    "compared when a run starts (make matrix), and make plan prepares the same. The machines are those that "
    "this inventory had when it was last used."
)


def show_campaigns(screen: Screen, root: Path, asked: Sequence[str]) -> list[dict[str, Any]]:
    """Shows the campaigns of some matrices, the oldest first; returns them as JSON has them.

    Args:
        screen: where.
        root: the checkout, with its results.
        asked: matrices by name or path; none = all that have results.

    Raises:
        UserError: there are no campaigns.
    """
    results = root / "results"
    folders = {results / Path(each).stem: each for each in asked} or {
        folder: folder.name for folder in sorted(results.glob("*"))
    }
    found = {folder: named for folder, named in folders.items() if campaigns(folder)}
    if not found:
        which = f" of {listed(asked)}" if asked else ""
        raise UserError(f"There are no campaigns{which} in {results}; make matrix starts one.")
    content = []
    for folder, named in found.items():
        rows = [_facts(root, path, named) for path in campaigns(folder)]
        screen.table(f"Campaigns of {folder.name}", COLUMNS, [_row(row) for row in rows])
        content += [{"matrix": folder.name} | row for row in rows]
    screen.line(ABOUT)
    return content


def _facts(root: Path, folder: Path, matrix: str) -> dict[str, Any]:
    facts: dict[str, Any] = {"campaign": folder.name}
    try:
        campaign = open_campaign(folder)
        standing = campaign.standing()
        running = any(
            not attempt.recorded and not attempt.controller_gone
            for run in campaign.file.plan
            for attempt in campaign.attempts(run.run_id)
        )
        return facts | {
            "inventory": campaign.file.environment.inventory,
            "nodes": campaign.file.environment.workers,
            "runs_done": standing.done,
            "runs_missing": standing.missing,
            "runs_impossible": standing.impossible,
            "state": "running" if running else "complete" if not standing.missing else "unfinished",
            "differs": _differences(root, campaign, matrix),
        }
    except UserError as error:
        return facts | {"state": "damaged", "fault": str(error)}


def _differences(root: Path, campaign: Campaign, named: str) -> list[str]:
    """What has changed in the checkout since the campaign began, in words; the cluster is not asked."""
    if not (MATRICES / f"{named}.yml").is_file() and not Path(named).is_file():
        return ["its matrix is not in experiments/matrices (give its path)"]
    identity = campaign.file.identity
    try:
        matrix = load_matrix(named)
        now: dict[str, Any] = {
            "matrix": matrix.content(),
            "code": sha256(training_archive(root, matrix.workload_folder)),
            "launching": launching_digest(root, matrix.stacks),
        }
        if machines := known_machines(root, root / "results"):
            now["machines"] = machines
    except UserError as error:
        return [str(error)]
    return identity.differences(identity.model_copy(update=now))


def _row(facts: dict[str, Any]) -> list[str]:
    if facts["state"] == "damaged":
        return [facts["campaign"], "", "", "", "", "damaged", facts["fault"]]
    numbers = [str(len(facts[name])) for name in ("runs_done", "runs_missing", "runs_impossible")]
    differs = f"no: {listed(facts['differs'])}" if facts["differs"] else "yes"
    return [facts["campaign"], facts["inventory"], *numbers, facts["state"], differs]
