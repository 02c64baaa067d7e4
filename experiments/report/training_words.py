"""What the runs of a campaign trained, and how, in the report's words."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from experiments.campaign.campaign import CampaignFile
from experiments.report.data_words import data_words
from experiments.report.names import value_text
from experiments.util.words import counted, listed
from training.spec import Work

OPTIMISERS: Final = {"adamw": "AdamW", "sgd": "SGD"}
IMPLEMENTATIONS: Final = {
    "foreach": "stepping many parameters at once (foreach)",
    "for_loop": "stepping parameter by parameter (for_loop)",
}
GRADIENTS: Final = {
    "auto": "gradients sent whole or by touched rows, as the work decides",
    "rows": "only touched rows of embeddings' gradients sent",
    "bf16": "gradients sent as bf16",
    "fp16": "gradients sent as fp16",
    "powersgd": "gradients sent compressed by PowerSGD",
}
PRECISIONS: Final = {"fp32": "fp32", "bf16": "bf16 (autocast)"}
PADDINGS: Final = {"longest": "padded to the longest of each batch", "none": "no padding computed"}


def models_text(campaign: CampaignFile) -> str:
    """The model of the first run; of data that come with models of their own, that of each."""
    work = campaign.measured[0].specification.work
    if campaign.simulated:
        times = {run.specification.work.simulated_step_ms for run in campaign.measured}
        steps = listed([f"{time:g}" for time in sorted(time for time in times if time is not None)], "or")
        return f"no model, but a simulated accelerator that takes {steps} ms a step"
    model = work.model
    return listed(list(dict.fromkeys(model.text(data) for data in campaign.data_of_runs.values())), "or")


def trained_text(campaign: CampaignFile) -> str:
    """What was trained on what; of a program with its own loop, how it was called."""
    if campaign.has_own_loop:
        return f"{models_text(campaign)}, a script with a loop of its own"
    data = data_words(campaign)
    return (
        f"{models_text(campaign)}, on {data.name}, {data.train} samples to train and {data.validation} to "
        "validate"
    )


def work_text(campaign: CampaignFile) -> str:
    """The work of a campaign in half a sentence."""
    work = campaign.measured[0].specification.work
    own = "" if campaign.has_own_loop else f", {batch_text(campaign)}, {work.precision}"
    return f"{trained_text(campaign)}{own}, on the {campaign.environment.device}"


def batch_text(campaign: CampaignFile) -> str:
    """The batch of all runs: `32 per worker`, or what all workers of a run share."""
    works = _possible_works(campaign)
    single, whole = ({getattr(work, name) for work in works} for name in ("batch_per_worker", "global_batch"))
    if len(single) > 1 and len(whole) == 1:
        return f"{whole.pop()} shared by all workers"
    each = "per worker" if all(work.slots_per_worker == 1 for work in works) else "per rank"
    return f"{campaign.measured[0].specification.work.batch_per_worker} {each}"


def training_text(campaign: CampaignFile, shown_elsewhere: Collection[str]) -> str:
    """How all runs trained; of a program with its own loop, only what it was told.

    Args:
        campaign: whose runs.
        shown_elsewhere: axes of the matrix that are left out here.
    """
    specification = campaign.measured[0].specification
    settings = _told(campaign) if campaign.has_own_loop else _settings(campaign)
    given = specification.conditions.threads
    said = "as many threads as the stack sets" if given == "stack" else counted(given, "thread")
    threads = ("threads", f"{said} per rank")
    return ", ".join(text for name, text in [*settings, threads] if name not in shown_elsewhere)


def _told(campaign: CampaignFile) -> Iterator[tuple[str, str]]:
    """What a program's command line says that is the same in all runs."""
    works = _possible_works(campaign)
    yield "", f"{data_words(campaign).train} samples an epoch, as declared"
    for name in works[0].model.told if works else ():
        values = {value_text(getattr(work, name)) for work in works}
        if len(values) == 1:
            yield name, f"{name} {values.pop()}"


def _settings(campaign: CampaignFile) -> Iterator[tuple[str, str]]:
    """Settings of the training, each with the name of its field, in words."""
    specification = campaign.measured[0].specification
    work = specification.work
    yield "epochs", counted(work.epochs, "epoch")
    yield "batch_per_worker", f"batch {batch_text(campaign)}"
    if work.gradient_accumulation > 1:
        yield "gradient_accumulation", f"computed in {work.gradient_accumulation} parts"
    momentum = f" with momentum {work.momentum:g}" if work.optimiser == "sgd" else ""
    yield "optimiser", f"{OPTIMISERS[work.optimiser]}{momentum}"
    if work.optimiser_implementation != "fused":
        yield "optimiser_implementation", IMPLEMENTATIONS[work.optimiser_implementation]
    yield "learning_rate", f"learning rate {work.learning_rate:g}"
    yield "schedule", f"{work.schedule} schedule"
    yield "warmup_steps", f"{work.warmup_steps} warm-up steps"
    yield "weight_decay", f"weight decay {work.weight_decay:g}"
    clipped = f"gradients clipped to norm {work.clip_gradients:g}"
    yield "clip_gradients", clipped if work.clip_gradients else "no gradient clipping"
    yield "precision", PRECISIONS[work.precision]
    if work.gradient_sync != "dense":
        yield "gradient_sync", GRADIENTS[work.gradient_sync]
    if work.padding != "max_length":
        yield "padding", PADDINGS[work.padding]
    if work.grouping == "length":
        yield "grouping", "batches of samples of similar length"
    if work.dropout_draws == "16_bit":
        yield "dropout_draws", "dropout drawn from 16 bits a number"
    if specification.conditions.compile:
        yield "compile", f"compiled (torch.compile, {specification.conditions.compile})"
    same_bits = work.deterministic and specification.conditions.deterministic
    yield "deterministic", "deterministic" if same_bits else "not deterministic"


def _possible_works(campaign: CampaignFile) -> list[Work]:
    return [run.specification.work for run in campaign.measured if run.cannot_run is None]
