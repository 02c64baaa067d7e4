"""What the dissertation measured, and what follows from it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final, Literal

import yaml
from pydantic import Field

from experiments.util.models import FrozenModel

SHORT, LONG = 20, 100  # its lengths, in epochs
FILE: Final = Path(__file__).parent / "dissertation.yml"

Quantity = Literal[
    "seconds of training",
    "seconds per epoch",
    "accuracy",
    "speed-up",
    "efficiency, %",
    "time over DDP's",
    "seconds per epoch beyond DDP's",
    "% beyond DDP's",
    "seconds per epoch, long over short",
]

BASE: Final = "ddp"  # the stack that it holds the others against
OVER: Final[Quantity] = "time over DDP's"
BEYOND: Final[Quantity] = "seconds per epoch beyond DDP's"
PERCENT: Final[Quantity] = "% beyond DDP's"


class PublishedRun(FrozenModel):
    """One row of tables 5.1 to 5.3."""

    table: str
    stack: str
    workers: int
    epochs: int
    of_runs: int
    seconds: float  # mean
    accuracy: float  # mean

    @property
    def per_epoch(self) -> float:
        """Seconds."""
        return self.seconds / self.epochs


class Linearity(FrozenModel):
    """One row of table 5.4, as printed."""

    table: str
    stack: str
    workers: int
    per_epoch_20: float
    per_epoch_100: float
    ratio: float


class Comparison(FrozenModel):
    """One row of tables 5.7 to 5.9 (two GPUs, 20 epochs), as printed."""

    stack: str
    overhead: float
    speed_up: float
    efficiency: float  # %
    more_s_per_epoch: float | None  # None: a dash, as it is DDP's own row
    more_percent: float | None


class Printed(FrozenModel):
    """What the dissertation derives from its measurements."""

    linearity: list[Linearity]
    comparison: list[Comparison]


class PrintedRow(FrozenModel):
    """What a row of a table says of all its figures."""

    stack: str = ""  # "": the table says it
    workers: int = 0  # 0: the columns say it
    epochs: list[int] = Field(default_factory=list)  # empty: the table or the columns say it


class PrintedColumn(FrozenModel):
    """A column of a table, and what it says of all its figures."""

    head: str
    quantity: Quantity
    workers: int = 0  # 0: the rows say it
    epochs: list[int] = Field(default_factory=list)  # two: of these lengths, compared


class PrintedTable(FrozenModel):
    """One of tables 5.1 to 5.9."""

    number: str
    title: str
    stack: str = ""
    epochs: list[int] = Field(default_factory=list)
    rows: list[PrintedRow]
    columns: list[PrintedColumn]


class Question(FrozenModel):
    """One of the research questions of section 1.3."""

    topic: Literal["time", "management", "use"]
    question: str
    section: str  # that answers it
    stacks: list[str]  # that the answer names as best
    answer: str  # in brief


class Aspect(FrozenModel):
    """A row of table 5.10, or what section 5.5.3 says about one point."""

    where: str
    aspect: Literal[
        "installation steps",
        "configuration files",
        "manual coordination",
        "launching",
        "changing a script",
        "submitting from elsewhere",
    ]
    cells: dict[str, str]  # by stack


class PublishedFeature(FrozenModel):
    """A cell of table 5.11."""

    says: str
    names: list[str] = Field(default_factory=list)  # what it names one by one


class OwnCondition(FrozenModel):
    """A condition of matrices that one of its stacks had, and the ones that it is compared with had not."""

    stack: str
    condition: str
    value: str
    where: str  # it says so
    settled: bool  # False: it says otherwise elsewhere


class Contradiction(FrozenModel):
    """A place where the dissertation's text and tables disagree."""

    where: str
    says: str
    but: str


class Dissertation(FrozenModel):
    """The dissertation's chapter 5."""

    title: str
    work: str
    runs: list[PublishedRun] = Field(min_length=1)
    printed: Printed
    tables: list[PrintedTable]
    questions: list[Question]
    aspects: list[Aspect]
    features: dict[str, dict[str, PublishedFeature]]  # by feature and stack
    releases: dict[str, str]  # stacks of this project that are its release of one of its stacks
    own_conditions: list[OwnCondition]
    contradictions: list[Contradiction]

    @property
    def stacks(self) -> list[str]:
        """Those that it compares."""
        return list(dict.fromkeys(run.stack for run in self.runs))

    def family(self, stack: str) -> list[str]:
        """One of its stacks, and those that are its release of it."""
        return [stack, *(name for name, of in self.releases.items() if of == stack)]

    def own_stack(self, stack: str) -> str:
        """The one of its stacks that `stack` is its release of; else `stack` itself."""
        return self.releases.get(stack, stack)

    def run(self, stack: str, workers: int, epochs: int) -> PublishedRun | None:
        """Its run of a stack, or of the one that `stack` is its release of; None if it has none."""
        wanted = (self.own_stack(stack), workers, epochs)
        return next((r for r in self.runs if (r.stack, r.workers, r.epochs) == wanted), None)

    def figure(self, quantity: Quantity, stack: str, workers: int, epochs: Sequence[int]) -> float | None:
        """A figure as its tables print it; None where they have a dash.

        Args:
            quantity: what of.
            stack: one that it compares.
            workers: 1 or 2.
            epochs: one of its lengths, or both of a quantity that compares them.
        """
        run = self.run(stack, workers, epochs[0])
        line = next(each for each in self.printed.linearity if (each.stack, each.workers) == (stack, workers))
        comparison = next(each for each in self.printed.comparison if each.stack == stack)
        assert run is not None  # a test asks for every figure of every table
        return {
            "seconds of training": run.seconds,
            "accuracy": run.accuracy,
            "seconds per epoch": line.per_epoch_20 if epochs[0] == SHORT else line.per_epoch_100,
            "seconds per epoch, long over short": line.ratio,
            OVER: comparison.overhead,
            "speed-up": comparison.speed_up,
            "efficiency, %": comparison.efficiency,
            BEYOND: comparison.more_s_per_epoch,
            PERCENT: comparison.more_percent,
        }[quantity]

    def overhead(self, stack: str, workers: int, epochs: int = 20) -> float | None:
        """A stack's time over DDP's; None unless it measured both."""
        own, ddp = self.run(stack, workers, epochs), self.run(BASE, workers, epochs)
        return own.seconds / ddp.seconds if own and ddp else None

    def speed_up(self, stack: str, workers: int, epochs: int = 20) -> float | None:
        """One worker's time over that of `workers`; None unless it measured both."""
        one, more = self.run(stack, 1, epochs), self.run(stack, workers, epochs)
        return one.seconds / more.seconds if one and more else None


@cache
def dissertation() -> Dissertation:
    """The dissertation's figures."""
    return Dissertation.model_validate(yaml.safe_load(FILE.read_text(encoding="utf-8")))
