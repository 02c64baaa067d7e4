"""What using a stack takes and what it offers: claims in its role's meta/facts.yml, with their evidence."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field, StringConstraints, model_validator

from experiments.cluster.role_files import read_role_file
from experiments.util.models import FrozenModel

FILE: Final = Path("meta") / "facts.yml"
Figure = Literal["times", "phases", "launch", "logs"]
#: What a claim may name as its figure: sections of the report; the last two are in the records.
FIGURES: Final[dict[str, str]] = {
    "times": "above: Times, quality, weights",
    "phases": "below: Where the time goes",
    "launch": "the records: launch.command",
    "logs": "the records: files below logs/",
}
Sentence = Annotated[str, StringConstraints(min_length=3, strip_whitespace=True)]
Level = Literal["built in", "by hand", "none"]


class Claim(FrozenModel):
    """One claim with its evidence: tests, a figure of the report, or the reason why there is none."""

    says: Sentence
    shown_by: list[Annotated[str, StringConstraints(pattern=r"^tests/[\w/]+\.py::test_\w+$")]] = Field(
        default_factory=list
    )
    figure: Figure | None = None
    not_shown: Sentence | None = None
    against: Sentence | None = None  # what the tests run against, if not the stack itself

    @model_validator(mode="after")
    def _one_of(self) -> Claim:
        if sum((bool(self.shown_by), self.figure is not None, self.not_shown is not None)) != 1:
            raise ValueError("a claim needs one of shown_by (tests), figure and not_shown (the reason)")
        if self.against is not None and not self.shown_by:
            raise ValueError("against says what tests run against: it goes with shown_by")
        return self

    @property
    def shown(self) -> bool:
        """Whether there is evidence for it."""
        return self.not_shown is None


class Feature(Claim):
    """A claim about what a stack offers, with how far it does so."""

    level: Level  # by hand: the training code or the user has to do it
    tried: dict[str, Claim] | None = None  # what table 5.11 names of it and was tried; None: not recorded


class Offers(FrozenModel):
    """The rows of the dissertation's table 5.11."""

    scheduling: Feature
    users: Feature
    tracking: Feature
    checkpoints: Feature
    faults: Feature
    search: Feature
    monitoring: Feature


OFFERS: Final = {
    "scheduling": "Resource scheduling",
    "users": "Several users",
    "tracking": "Experiment tracking",
    "checkpoints": "Checkpoint management",
    "faults": "Fault tolerance",
    "search": "Hyperparameter search",
    "monitoring": "Monitoring",
}


class Using(FrozenModel):
    """What one run takes."""

    commands: list[Claim] = Field(min_length=1)
    logs: list[Claim] = Field(min_length=1)  # places to look
    elsewhere: Claim | None = None  # submitting from a machine outside the cluster; None: not recorded


class Facts(FrozenModel):
    """meta/facts.yml of a stack's role."""

    title: Sentence
    stands_on: list[str]  # roles that must run before its own
    using: Using
    offers: Offers

    @property
    def claims(self) -> list[Claim]:
        """All claims."""
        features = [getattr(self.offers, name) for name in OFFERS]
        return [
            *self.using.commands,
            *self.using.logs,
            *([] if self.using.elsewhere is None else [self.using.elsewhere]),
            *features,
            *(claim for feature in features for claim in (feature.tried or {}).values()),
        ]


def read_facts(role: Path) -> Facts | None:
    """The facts of the stack whose role is in `role`; None if it has none.

    Raises:
        UserError: the file is damaged or does not match the model.
    """
    return read_role_file(role / FILE, Facts)
