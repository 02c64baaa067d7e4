"""The dropout of attention's weights by itself, and what it costs: torch's faster kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

from tests.unit.training.training_helpers import TINY, Datasets, Run, data_spec, load, prepare_texts, run_spec
from tests.unit.training.workloads.text_classification.test_encoder import data_of, run_of, save_encoder
from training.errors import WorkloadError
from training.spec import Conditions
from training.workload import open_workload


def dropped(monkeypatch: pytest.MonkeyPatch, workload: Any) -> tuple[set[float], set[float]]:
    """Probabilities in a step: those of attention, and those of modules."""
    of_attention, of_modules = set(), set()
    usual = functional.scaled_dot_product_attention
    usual_dropout = functional.dropout

    def attend(*arguments: Any, **named: Any) -> torch.Tensor:
        of_attention.add(named["dropout_p"])
        return usual(*arguments, **named)

    def drop(given: torch.Tensor, p: float, *arguments: Any) -> torch.Tensor:
        of_modules.add(p)
        return usual_dropout(given, p, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(functional, "scaled_dot_product_attention", attend)
        patched.setattr(functional, "dropout", drop)
        workload.loss(workload.model().train(), workload.batch("train", torch.arange(4), 1))
    return of_attention, of_modules


@pytest.mark.parametrize("padding", ["max_length", "none"])
@pytest.mark.parametrize("last_layer", ["all_tokens", "first_token"])
@pytest.mark.parametrize(("asked", "found"), [(None, 0.2), (0.2, 0.2), (0.0, 0.0), (0.3, 0.3)])
def test_attention_has_its_own(
    datasets: Datasets,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    padding: str,
    last_layer: str,
    asked: float | None,
    found: float,
) -> None:
    prepared = datasets(data_spec())
    model = TINY | {"layers": 2, "dropout": 0.2, "attention_dropout": asked, "last_layer": last_layer}
    work = run_spec(prepared, data_spec(), model=model, padding=padding).work
    workload = open_workload(work, prepared.path, Conditions(), tmp_path)
    assert dropped(monkeypatch, workload) == ({found}, {0.2})


def test_only_the_draws_differ(run: Run, datasets: Datasets) -> None:
    """As all other dropout, by number or by default: the same bits. Without any dropout: likewise."""
    prepared = datasets(data_spec())

    def trained(**model: Any) -> tuple[str, float]:
        out, statuses = run(run_spec(prepared, data_spec(), model=TINY | model), prepared.path)
        assert statuses == [0]
        result = load(out / "result.json")
        return result["weights_digest"], result["epochs"][-1]["validation_loss"]

    plain, without = trained(dropout=0.2), trained(dropout=0.2, attention_dropout=0.0)
    assert plain == trained(dropout=0.2, attention_dropout=0.2)
    assert plain[0] != without[0] and plain[1] == pytest.approx(without[1], rel=0.05)
    assert trained(dropout=0.0) == trained(dropout=0.0, attention_dropout=0.0)


def test_other_encoders_have_it_by_their_own_name_or_say_that_they_have_not(
    datasets: Datasets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = datasets(data_spec())

    def network(architecture: str) -> Any:
        model = TINY | {"architecture": architecture, "attention_dropout": 0.0}
        work = run_spec(prepared, data_spec(), model=model).work
        return open_workload(work, prepared.path, Conditions(), tmp_path).model()

    config = network("distilbert").config
    assert (config.attention_dropout, config.dropout) == (0.0, 0.1)
    monkeypatch.setattr("training.workloads.text_classification.model.OF_ATTENTION", ("unheard_of",))
    with pytest.raises(
        WorkloadError, match=r"of distilbert has no dropout of attention alone .*leave it out"
    ):
        network("distilbert")


def test_a_pretrained_encoder_keeps_its_own_but_where_it_is_asked_for_another(
    made_up_sentences: Path, tmp_path: Path
) -> None:
    save_encoder(tmp_path / "bert", "bert")
    data = data_of("bert")
    prepared = prepare_texts(data, made_up_sentences, tmp_path / "data", tmp_path)
    for asked, expected in ((None, (0.1, 0.1)), (0.0, (0.1, 0.0))):
        model = {"init": "pretrained", "attention_dropout": asked}
        work = run_of(prepared, data, model=model, workers=1).work
        network: Any = open_workload(work, prepared.path, Conditions(), tmp_path).model()
        found = network.config.hidden_dropout_prob, network.config.attention_probs_dropout_prob
        assert found == expected
