"""Ladders of a matrix: from a stack as somebody ran it down to equal conditions, one change at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

Label = Annotated[str, StringConstraints(min_length=1, max_length=60)]


class Rung(BaseModel):
    """The cells of the matrix whose axes have these values."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    label: Label
    when: Annotated[dict[str, Any], Field(min_length=1)]

    def holds(self, axes: Mapping[str, Any]) -> bool:
        """Whether a run with these values is on this rung."""
        return all(name in axes and axes[name] == value for name, value in self.when.items())


class Ladder(BaseModel):
    """Rungs from the start down to the end; each is compared with the next."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: Label
    rungs: Annotated[list[Rung], Field(min_length=2)]

    def rest(self, axes: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
        """What runs on different rungs must share to be compared: all axes except the rungs' own.

        (And except the seed, by which runs are paired.)
        """
        own = {*self.rungs[0].when, "seed"}
        return tuple((name, repr(value)) for name, value in axes.items() if name not in own)


def ladder_faults(
    ladders: Sequence[Ladder], axes: Sequence[str], combinations: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """The faults of a matrix's ladders: the place in its file, and a sentence."""
    for at, ladder in enumerate(ladders):
        if ladder.name in [other.name for other in ladders[:at]]:
            yield (
                ("ladders", at, "name"),
                f"two ladders are named {ladder.name}; give each its own name.",
            )
        first = ladder.rungs[0]
        for number, rung in enumerate(ladder.rungs):
            place = ("ladders", at, "rungs", number)
            unknown = [name for name in rung.when if name not in axes or name == "seed"]
            if unknown:
                yield (
                    place,
                    f"a rung names axes of the matrix other than the seed "
                    f"({', '.join(name for name in axes if name != 'seed')}), not {', '.join(unknown)}.",
                )
            elif set(rung.when) != set(first.when):
                yield (
                    place,
                    f"every rung of a ladder names the same axes ({', '.join(first.when)}), "
                    f"but this one names {', '.join(rung.when)}.",
                )
            elif rung.when in [other.when for other in ladder.rungs[:number]]:
                yield place, "this rung is already on the ladder; each must differ from the others."
            elif not any(rung.holds(combination) for combination in combinations):
                values = ", ".join(f"{name}={value}" for name, value in rung.when.items())
                yield (
                    place,
                    f"no run of the matrix is on this rung ({values}); add one to the axes or rows.",
                )
            elif number and not _compared(ladder, number, combinations):
                yield (
                    place,
                    "no run on this rung can be compared with one on the previous rung "
                    f"({ladder.rungs[number - 1].label}): their other axes differ.",
                )


def _compared(ladder: Ladder, number: int, combinations: Sequence[Mapping[str, Any]]) -> bool:
    here, before = (
        {ladder.rest(axes) for axes in combinations if ladder.rungs[at].holds(axes)}
        for at in (number, number - 1)
    )
    return bool(here & before)
