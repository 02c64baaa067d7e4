"""What leaves out what nothing reads trains the same model, to rounding, and computes less."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from transformers import AutoModelForSequenceClassification

from tests.unit.training.training_helpers import TINY, Datasets, Run, events, load, prepare_texts, run_spec
from tests.unit.training.workloads.text_classification.test_encoder import data_of, run_of, save_encoder
from tests.unit.training.workloads.text_classification.test_kinds import numbers
from training.errors import WorkloadError
from training.export import export
from training.spec import Conditions, DataSpec, RunSpec, Work
from training.workload import open_workload
from training.workloads.text_classification.padding import ROUNDED_TO
from training.workloads.text_classification.settings import Data
from training.workloads.text_classification.skipping import FEW_LENGTHS

DATA = Data(train=40, validation=11, seed=1, max_length=64, vocabulary=300)
MODEL = TINY | {"layers": 2, "hidden": 32, "intermediate": 32}
SKIPPING = [
    ("longest", "all_tokens"),
    ("none", "all_tokens"),
    ("max_length", "first_token"),
    ("none", "first_token"),
]


def spec_of(datasets: Datasets, padding: str, last_layer: str, **more: Any) -> RunSpec:
    model = MODEL | {"last_layer": last_layer, "dropout": more.pop("dropout", 0.0)}
    settings: dict[str, Any] = {
        "workers": 2,
        "batch_per_worker": 4,
        "epochs": 4,
        "checkpoint_every_epochs": 1,
    }
    settings |= {"learning_rate": 5e-3, "warmup_steps": 0, "schedule": "constant"}
    settings |= {"model": model, "padding": padding}
    return run_spec(datasets(DATA), DATA, **settings | more)


def trained(run: Run, datasets: Datasets, padding: str, last_layer: str) -> tuple[Any, list[Any], list[Any]]:
    """Weights, losses step by step, and figures of the epochs, without dropout."""
    out, statuses = run(spec_of(datasets, padding, last_layer), datasets(DATA).path)
    assert statuses == [0, 0]
    *_, kept = sorted((out / "checkpoints").iterdir())
    steps = [json.loads(line) for line in (out / "steps.jsonl").read_text(encoding="utf-8").splitlines()]
    # How many tokens are computed is known without looking at the batches only if all are.
    assert all(("tokens_per_s" in step) == (padding == "max_length") for step in steps)
    state = torch.load(kept / "state.pt", weights_only=True)
    return state["model"], [step["loss"] for step in steps], state["epochs"]


def test_without_dropout_it_is_the_same_training_to_rounding(run: Run, datasets: Datasets) -> None:
    """Over 20 steps on two ranks: losses within three in a million, weights within 1e-5.

    But for biases of keys: they change no attention, so their gradients are nothing but rounding, to which
    Adam gives the size of any other gradient.
    """
    weights, losses, epochs = trained(run, datasets, "max_length", "all_tokens")
    assert len(losses) == 20 and max(losses) - min(losses) > 0.01, (
        "what is compared changes from step to step"
    )
    for padding, last_layer in SKIPPING:
        found, steps, figures = trained(run, datasets, padding, last_layer)
        assert steps == pytest.approx(losses, rel=3e-6)
        assert found.keys() == weights.keys()
        apart = {name: float((found[name] - weights[name]).abs().max()) for name in weights}
        assert max(each for name, each in apart.items() if not name.endswith("key.bias")) < 1e-5, apart
        for one, two in zip(figures, epochs, strict=True):
            assert one["validation_loss"] == pytest.approx(two["validation_loss"], rel=3e-6)
            assert one["validation_correct"] == two["validation_correct"]


@pytest.mark.parametrize(("padding", "last_layer"), SKIPPING)
def test_what_is_read_by_nothing_is_not_computed(
    datasets: Datasets, tmp_path: Path, padding: str, last_layer: str
) -> None:
    workload = open_workload(
        spec_of(datasets, padding, last_layer).work, datasets(DATA).path, Conditions(), tmp_path
    )
    network: Any = workload.model()
    tokens: list[int] = []
    for layer in network.bert.encoder.layer:
        layer.intermediate.register_forward_hook(
            lambda _, given, __: tokens.append(given[0].shape[:2].numel())
        )
    batch = workload.batch("train", torch.arange(6), 1)
    lengths = batch["attention_mask"].sum(dim=1)
    assert len(set(lengths.tolist())) > 1 and lengths.max() < 64
    workload.loss(network, batch)
    counted = int(lengths.sum())
    assert counted % ROUNDED_TO
    filled = -(-counted // ROUNDED_TO) * ROUNDED_TO  # so that there are few shapes
    computed = {"none": filled, "longest": 6 * int(lengths.max()), "max_length": 6 * 64}[padding]
    assert tokens == [computed, 6 if last_layer == "first_token" else computed]


@pytest.mark.parametrize("last_layer", ["all_tokens", "first_token"])
def test_in_bf16_what_fills_up_shapes_changes_rounding_alone(
    datasets: Datasets, tmp_path: Path, last_layer: str
) -> None:
    found, tokens = [], []
    for padding, precision in (("max_length", "fp32"), ("max_length", "bf16"), ("none", "bf16")):
        spec = spec_of(datasets, padding, last_layer, precision=precision)
        workload = open_workload(spec.work, datasets(DATA).path, Conditions(), tmp_path)
        network: Any = workload.model()
        network.bert.encoder.layer[0].intermediate.register_forward_hook(
            lambda _, given, __: tokens.append(given[0].shape[:2].numel())
        )
        batch = workload.batch("train", torch.arange(6), 1)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
            loss = workload.loss(network, batch)
        loss.backward()  # type: ignore[no-untyped-call]
        found.append({name: each.grad for name, each in network.named_parameters()})
    counted = int(batch["attention_mask"].sum())
    assert counted % ROUNDED_TO and tokens[-1] == -(-counted // ROUNDED_TO) * ROUNDED_TO
    lengths = batch["attention_mask"].sum(dim=1)
    assert len({-(-int(each) // FEW_LENGTHS) for each in lengths}) < len(set(lengths.tolist()))
    exact, plain, ours = found
    for name, gradient in exact.items():
        rounding = float((plain[name] - gradient).norm())
        assert float((ours[name] - gradient).norm()) <= 2 * rounding + 1e-6, name


@pytest.mark.parametrize(("padding", "last_layer"), [("max_length", "all_tokens"), *SKIPPING])
@pytest.mark.parametrize("length", [64, 8])  # of the longest; some texts have 8 tokens and more
def test_a_batch_that_is_ready_gives_the_same_bits(
    datasets: Datasets, tmp_path: Path, padding: str, last_layer: str, length: int
) -> None:
    data = DATA.model_copy(update={"max_length": length})
    prepared = datasets(data)
    spec = run_spec(prepared, data, model=MODEL | {"last_layer": last_layer}, padding=padding)
    workload = open_workload(spec.work, prepared.path, Conditions(), tmp_path)
    network = workload.model().train()
    chosen = torch.arange(40)[workload.lengths() >= 8] if length == 8 else torch.arange(6)
    assert len(chosen) > 1
    batch = workload.batch("train", chosen, 1)
    ready = workload.ready(batch)
    if padding != "none":
        assert ("attention_mask" in ready) == (not batch["attention_mask"].all()) == (length > 8)
    found = []
    for each in (batch, ready):
        network.zero_grad()
        torch.manual_seed(1)
        workload.loss(network, each).backward()  # type: ignore[no-untyped-call]
        found.append([weight.grad for weight in network.parameters()])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_pairs_keep_their_types(tmp_path: Path) -> None:
    data = numbers(tmp_path)
    prepared = prepare_texts(data, None, tmp_path / "data", tmp_path)
    logits = []
    for padding, last_layer in [("max_length", "all_tokens"), *SKIPPING]:
        spec = run_spec(prepared, data, model=MODEL | {"last_layer": last_layer}, padding=padding)
        workload = open_workload(spec.work, prepared.path, Conditions(), tmp_path)
        batch = workload.batch("train", torch.arange(8), 1)
        assert batch["token_type_ids"].any()
        network: Any = workload.model().eval()
        untyped = batch | {"token_type_ids": torch.zeros_like(batch["input_ids"])}
        with torch.inference_mode():
            network.bert.embeddings.token_type_embeddings.weight.mul_(50)  # so that types matter
            logits.append(workload.predict(network, batch)["predicted"])
            without = workload.predict(network, untyped)["predicted"]
        assert (without - logits[-1]).abs().max() > 1e-4
        torch.testing.assert_close(logits[-1], logits[0], rtol=0, atol=1e-6)


@pytest.mark.parametrize("padding", ["max_length", "none"])
def test_with_dropout_it_learns_and_transformers_agrees_on_the_model(
    run: Run, datasets: Datasets, padding: str
) -> None:
    """Recomputed activations give the same bits; the exported model is one that any code loads."""
    digests = []
    for again in (False, True):
        work = {"dropout": 0.1, "activation_checkpointing": again, "workers": 1, "epochs": 1}
        spec = spec_of(datasets, padding, "first_token", **work)
        out, statuses = run(spec, datasets(DATA).path)
        assert statuses == [0]
        digests.append(load(out / "result.json")["weights_digest"])
    assert digests[0] == digests[1]
    assert events(out)[0]["model"].endswith(", from scratch, the last layer for the first token alone")

    plain = spec_of(datasets, "max_length", "all_tokens", dropout=0.1)
    home = export(spec, datasets(DATA).path, out, out / "home")
    workload = open_workload(plain.work, datasets(DATA).path, Conditions(), out)
    (out / "plain").mkdir()
    workload.save_model(workload.model(), out / "plain")
    assert load(home / "config.json") == load(out / "plain" / "config.json")
    found: Any = AutoModelForSequenceClassification.from_pretrained(home)
    with torch.inference_mode():
        theirs = found.eval()(**workload.batch("validation", torch.arange(11), 1)).loss.item()
    assert theirs == pytest.approx(load(out / "result.json")["epochs"][-1]["validation_loss"], rel=1e-6)


def test_a_pretrained_bert_can_do_it_and_another_encoder_says_that_it_cannot(
    run: Run, made_up_sentences: Path, tmp_path: Path
) -> None:
    kinds = {}
    for kind in ("bert", "distilbert"):
        save_encoder(tmp_path / kind, kind)
        data = data_of(kind)
        prepared = prepare_texts(data, made_up_sentences, tmp_path / "data", tmp_path)
        model = {"init": "pretrained", "last_layer": "first_token"}
        out, statuses = run(run_of(prepared, data, model=model, padding="none", workers=1), prepared.path)
        kinds[kind] = statuses
    assert kinds == {"bert": [0], "distilbert": [1]}
    assert load(out / "error-0.json")["message"] == (
        "padding: none and last_layer: first_token can only be had with a BERT that encodes, and this model "
        "is a distilbert; leave them out."
    )


def test_a_decoder_sees_nothing_that_follows_whether_padded_or_not(
    datasets: Datasets, tmp_path: Path
) -> None:
    prepared = datasets(DATA)
    work = run_spec(prepared, DATA, model=MODEL | {"dropout": 0.0, "config": {"is_decoder": True}}).work
    workload = open_workload(work, prepared.path, Conditions(), tmp_path)
    network = workload.model().eval()
    batch = workload.batch("validation", torch.arange(6), 1)
    assert not batch["attention_mask"].all()
    found = network(**{name: each for name, each in batch.items() if name != "labels"}).logits
    ready = workload.predict(network, workload.ready(batch))["logits"]
    assert torch.equal(ready, found)


def test_a_bert_that_decodes_cannot(datasets: Datasets, tmp_path: Path) -> None:
    prepared = datasets(DATA)
    decoder = MODEL | {"config": {"is_decoder": True}}
    work = run_spec(prepared, DATA, model=decoder, padding="none").work
    with pytest.raises(WorkloadError, match=r"^padding: none can .* is a bert that decodes; leave it out\.$"):
        open_workload(work, prepared.path, Conditions(), tmp_path).model()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"padding": "none", "model": {"architecture": "distilbert"}},
            "padding: none is nothing that this model of text-classification heeds; use max_length or",
        ),
        (
            {"padding": "longest", "workload": "image-classification", "data": {"size": 8}},
            "padding: longest is nothing that this model of image-classification heeds; use max_length",
        ),
        (
            {"grouping": "length", "workload": "image-classification", "data": {"size": 8}},
            "grouping: length needs samples that differ in length, and these data of image-classification",
        ),
        (
            {"grouping": "length", "workload": "causal-lm", "data": {"block": 16}},
            "grouping: length needs samples that differ in length, and these data of causal-lm have none",
        ),
        (
            {"model": {"architecture": "distilbert", "last_layer": "first_token"}},
            "last_layer: first_token can only be had with architecture: bert",
        ),
    ],
)
def test_what_cannot_be_had_is_refused_before_anything_runs(changes: dict[str, Any], said: str) -> None:
    work = {"data_digest": "0" * 64, "workers": 1, "epochs": 1, "seed": 1}
    sizes = {"train": 100, "validation": 20, "seed": 1}
    asked = changes | {"data": changes.get("data", {"max_length": 16}) | sizes}
    DataSpec.model_validate({name: asked[name] for name in ("data", "workload") if name in asked})
    with pytest.raises(ValidationError, match=said):
        Work.model_validate(work | asked)
