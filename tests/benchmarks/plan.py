"""How much a benchmark measures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from tests.benchmarks.engine import work_on
from training.spec import Work

T = TypeVar("T")


@dataclass(frozen=True)
class Plan:
    """What all parts are told."""

    rounds: int
    steps: int  # in each epoch
    cores: Sequence[int]  # the kernel's numbers of those that may be used
    epochs: int = 1
    batch: int = 32
    accuracy: bool = False  # of all samples for validation, after the last step
    model: Mapping[str, Any] = field(default_factory=dict)  # settings beside the defaults

    def work_on(self, data: Path, **settings: Any) -> Work:
        """The work on a data set; `settings` are of the work, those of the model beside the plan's.

        Raises:
            DataError: there is no data set, or it has too few samples.
            ValidationError: the work can't have these settings.
        """
        model = {**self.model, **settings.get("model", {})}
        own = {"epochs": self.epochs, "batch_per_worker": self.batch}
        return work_on(data, self.steps, **(own | settings | {"model": model}))

    def settings(self) -> dict[str, int | float | str | bool]:
        """What all samples of a part have in common, by name."""
        return {
            "rounds": self.rounds,
            "steps an epoch": self.steps,
            "epochs": self.epochs,
            "batch": self.batch,
        }


def in_turns(names: Sequence[T], rounds: int) -> Iterator[tuple[int, T]]:
    """Each name once in every round, numbered from 1; every other round goes backwards.

    So a drift of the machine affects all of them alike with an even number of rounds; with an odd number,
    what one round of it leaves is shared out among all.
    """
    for number in range(1, rounds + 1):
        for name in names if number % 2 else reversed(names):
            yield number, name
