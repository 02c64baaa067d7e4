"""What exports for other tools say of a single run: its seconds, figures and marks, and an id that lasts."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Final

from experiments.campaign.campaign import CampaignFile
from experiments.records.record import TEST, VALIDATION, Epoch, Record

SIMULATED: Final = "simulated"
BARE: Final = "bare"
STANDIN: Final = "stand-in"
COUNTS: Final = ("correct", "count")  # of the test split: how many samples, which is no figure
NAMESPACE: Final = uuid.uuid5(uuid.NAMESPACE_OID, "trainbed")


def lasting_id(campaign: CampaignFile, *names: object) -> uuid.UUID:
    """An id of something in a campaign, the same whenever it is exported."""
    return uuid.uuid5(NAMESPACE, "/".join(map(str, (campaign.matrix, campaign.name, *names))))


def is_simulated(record: Record) -> bool:
    """Whether the run waited in the place of training."""
    return record.specification.work.simulated_step_ms is not None


def has_own_times(record: Record) -> bool:
    """Whether its seconds are those of its stack training, so that they may stand beside others."""
    return record.ok and record.timed and not is_simulated(record) and not record.specification.bare


def own_seconds(record: Record, seconds: Mapping[str, float | None]) -> dict[str, float]:
    """Those of a run's `seconds` that are known and may be shown, by name.

    None of a run that does not count, or whose times are not its stack's. Of a simulated run the names begin
    with `simulated_`, of an empty program's with `bare_`, so that they stand beside no real ones.
    """
    if not (record.ok and record.timed):
        return {}
    prefix = f"{BARE}_" if record.specification.bare else f"{SIMULATED}_" if is_simulated(record) else ""
    return {f"{prefix}{name}": value for name, value in seconds.items() if value is not None}


def run_seconds(record: Record) -> dict[str, float]:
    """`train_s`, `total_s`, and each phase's as `phase_forward_s`, as far as `own_seconds` shows them."""
    whole = {"train_s": record.train_s, "total_s": record.total_s}
    phases = {f"phase_{name}_s": seconds for name, seconds in (record.phases or {}).items()}
    preparing = {"preparing_s": record.prepared.seconds} if record.prepared is not None else {}
    return own_seconds(record, {**whole, **preparing, **phases})


def epoch_figures(epoch: Epoch) -> dict[str, float]:
    """An epoch's losses and metrics that are finite, by the names that training reports them by."""
    named = {
        "train_loss": epoch.train_loss,
        f"{VALIDATION}loss": epoch.validation_loss,
        f"{VALIDATION}accuracy": epoch.validation_accuracy,
    }
    named |= {f"{VALIDATION}{name}": value for name, value in epoch.metrics.items()}
    named |= {f"{TEST}{name}": value for name, value in epoch.test.items() if name not in COUNTS}
    return {name: value for name, value in named.items() if value is not None}


def marks(record: Record) -> list[str]:
    """What sets a run apart from one that trained alone, undisturbed, on its stack."""
    return [
        *([SIMULATED] if is_simulated(record) else []),
        *([BARE] if record.specification.bare else []),
        *([STANDIN] if record.standin is not None else []),
        *(["traced"] if record.disturbed is not None else []),
        *([record.together.why] if record.together is not None else []),
    ]
