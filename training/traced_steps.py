"""Which steps of a training are traced."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema

from training.settings import Settings

STEPS: Final = re.compile(r"([1-9][0-9]{0,8})(?:-([1-9][0-9]{0,8}))?")
MOST: Final = 100  # steps: a trace grows by thousands of events with each


def _text(given: Any) -> Any:
    """One step as text: YAML reads `12` as a number."""
    return str(given) if isinstance(given, int) and not isinstance(given, bool) else given


def _ends(steps: str) -> tuple[int, int]:
    found = STEPS.fullmatch(steps)
    if found is None:
        raise ValueError(f"steps are whole numbers from 1 on, such as 12 or 10-15, not {steps!r:.80}")
    return int(found[1]), int(found[2] or found[1])


def _checked(steps: str) -> str:
    first, last = _ends(steps)
    if first > last:
        raise ValueError(f"the first step ({first}) comes after the last ({last}): swap them")
    if (number := last - first + 1) > MOST:
        raise ValueError(f"{steps} are {number} steps, and {MOST} are the most that are traced")
    return steps if first < last else str(first)


Steps = Annotated[
    str,
    BeforeValidator(_text),
    AfterValidator(_checked),
    WithJsonSchema(
        {
            "description": "Steps counted over the whole training from 1, inclusive: 10-15, or 12.",
            "anyOf": [{"type": "string", "pattern": f"^{STEPS.pattern}$"}, {"type": "integer", "minimum": 1}],
        }
    ),
]


class Trace(Settings):
    """The steps that torch's profiler records on every rank, counted over the whole training from 1."""

    steps: Steps  # inclusive

    @property
    def first(self) -> int:
        """The first of them."""
        return _ends(self.steps)[0]

    @property
    def last(self) -> int:
        """The last of them."""
        return _ends(self.steps)[1]

    @property
    def name(self) -> str:
        """`step 12`, or `steps 10-15`."""
        return f"step{'s' if self.first < self.last else ''} {self.steps}"

    @staticmethod
    def file(rank: int) -> str:
        """Name of a rank's trace in the run's folder."""
        return f"trace-{rank}.json.gz"
