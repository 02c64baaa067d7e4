"""The data of a campaign's runs in words: every data set, not only the first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from experiments.campaign.campaign import CampaignFile
from experiments.report.formats import GROUPED, number
from experiments.util.words import listed


@dataclass(frozen=True)
class DataWords:
    """What the data sets are, each part with all of its values: `2,000 or 4,000`."""

    name: str
    train: str  # samples
    validation: str
    test: str  # likewise; "" if nothing is held out
    length: str  # tokens of a sample; "" if there are none
    metric: str  # by which people judge the models
    notes: str  # on the sources, as sentences; "" if there are none


def data_words(campaign: CampaignFile) -> DataWords:
    """The data of a campaign's runs."""
    data = list(campaign.data_of_runs.values())
    notes = [each.get("source", {}).get("note", "") for each in campaign.every_dataset.values()]
    return DataWords(
        name=_any_of(each.name for each in data),
        train=_any_of(number(each.train, GROUPED) for each in data),
        validation=_any_of(number(each.validation, GROUPED) for each in data),
        test=_any_of(number(each.test, GROUPED) for each in data if each.test),
        length=_any_of(str(each.tokens_per_sample) for each in data if each.tokens_per_sample),
        metric=_any_of(each.metric.replace("_", " ") for each in data),
        notes=" ".join(dict.fromkeys(filter(None, notes))),
    )


def _any_of(texts: Iterable[str]) -> str:
    found = list(dict.fromkeys(texts))
    return listed(found, "or") if found else ""
