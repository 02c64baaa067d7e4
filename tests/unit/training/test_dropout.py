"""Dropout from 16 bits a number: exact probabilities, torch's own mathematics, and draws of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

from tests.unit.training.training_helpers import TINY, Datasets, Run, data_spec, load, run_spec
from training.dropout import LEVELS, draw_16_bits, draws, mask
from training.errors import WorkloadError
from training.spec import Conditions
from training.workload import open_workload


@pytest.mark.parametrize(
    ("probability", "dropped"), [(0.1, 6554), (0.5, 32768), (1e-9, 0), (0.999999, LEVELS - 1)]
)
def test_so_many_of_all_numbers_are_dropped_and_the_rest_makes_up_for_them(
    probability: float, dropped: int
) -> None:
    every = torch.arange(-(LEVELS // 2), LEVELS // 2).to(torch.int16)
    found = mask(every, probability)
    assert int((found == 0).sum()) == dropped
    assert sorted(set(found[dropped:].tolist())) == pytest.approx([LEVELS / (LEVELS - dropped)], rel=1e-7)
    assert found.double().mean().item() == pytest.approx(1.0, rel=1e-7)


def test_each_bit_is_drawn_as_often_as_not_and_by_itself() -> None:
    torch.manual_seed(1)
    drawn = draws(400_001, torch.device("cpu"))
    assert drawn.dtype == torch.int16 and drawn.shape == (400_001,)
    bits = torch.stack([(drawn >> bit) & 1 for bit in range(16)]).double()
    assert (bits.mean(dim=1) - 0.5).abs().max() < 0.004  # five standard deviations
    apart = torch.corrcoef(torch.cat([bits[:, :-1], bits[:, 1:]])) - torch.eye(32, dtype=torch.float64)
    assert apart.abs().max() < 0.008
    again = draws(400_001, torch.device("cpu"))
    assert not torch.equal(again, drawn)
    torch.manual_seed(1)
    assert torch.equal(draws(400_001, torch.device("cpu")), drawn)


def test_a_module_drops_as_before_but_by_other_numbers() -> None:
    network = torch.nn.Sequential(torch.nn.Dropout(0.25), torch.nn.Identity(), torch.nn.Dropout(0.0))
    assert draw_16_bits(network) == 1
    given = torch.randn(300, 70, generator=torch.Generator().manual_seed(2), requires_grad=True)
    assert network.eval()(given) is given
    torch.manual_seed(3)
    found = network.train()(given)
    kept = found != 0
    assert kept.double().mean().item() == pytest.approx(0.75, abs=0.015)
    torch.testing.assert_close(found[kept], given[kept] / 0.75)
    found.sum().backward()
    assert given.grad is not None
    torch.testing.assert_close(given.grad, kept / 0.75)
    torch.manual_seed(3)
    assert not torch.equal(functional.dropout(given, 0.25), found)
    assert network(given.to(torch.bfloat16)).dtype == torch.bfloat16


def test_training_differs_in_the_draws_alone(run: Run, datasets: Datasets) -> None:
    """The same first weights and the same figures of them; recomputed activations end with the same bits."""
    prepared, found = datasets(data_spec()), {}
    for draws_of, again in (("torch", False), ("16_bit", False), ("16_bit", True)):
        model = TINY | {"dropout": 0.2}
        work = {"dropout_draws": draws_of, "activation_checkpointing": again, "epochs": 2, "model": model}
        spec = run_spec(prepared, data_spec(), learning_rate=1e-9, **work)
        out, statuses = run(spec, prepared.path)
        assert statuses == [0]
        found[draws_of, again] = load(out / "result.json")
    plain, ours = found["torch", False], found["16_bit", False]
    assert ours["weights_digest"] == found["16_bit", True]["weights_digest"] != plain["weights_digest"]
    for mine, other in zip(ours["epochs"], plain["epochs"], strict=True):
        # Weights hardly move here, so without dropout the two agree, and with it they don't.
        assert mine["validation_loss"] == pytest.approx(other["validation_loss"], rel=1e-6)
        assert mine["train_loss"] != pytest.approx(other["train_loss"], rel=1e-6)
        assert mine["train_loss"] == pytest.approx(other["train_loss"], rel=0.02)


@pytest.mark.parametrize("in_attention", [0.0, 0.1])
def test_where_no_module_drops_anything_it_is_refused(
    datasets: Datasets, tmp_path: Path, in_attention: float
) -> None:
    prepared = datasets(data_spec())
    model: dict[str, Any] = TINY | {"dropout": 0.0, "attention_dropout": in_attention}
    work = run_spec(prepared, data_spec(), model=model, dropout_draws="16_bit").work
    with pytest.raises(WorkloadError, match=r"^The model of text-classification drops nothing by .*leave it"):
        open_workload(work, prepared.path, Conditions(), tmp_path).model()
