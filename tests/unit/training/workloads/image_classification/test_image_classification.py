"""Images by class: what is read, scaled and augmented; a residual network that learns and comes home."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from pydantic import ValidationError

from tests.unit.training.training_helpers import Run, load, run_on
from training.data.prepare import Place, Prepared, prepare
from training.errors import DataError
from training.export import export
from training.spec import Conditions, DataSpec, RunSpec, explain
from training.workload import Batch, Workload, open_workload
from training.workloads.image_classification.network import build_network
from training.workloads.image_classification.settings import Data, Model

DIGITS = {"train": 200, "validation": 50, "seed": 3, "size": 16, "channels": 1}
COLOURS = {"blue": (0, 0, 255), "green": (0, 255, 0), "red": (255, 0, 0)}
FOLDERS = {"source": "folders", "train_folder": "mine", "train": 12, "validation": 6, "seed": 3, "size": 12}
TINY = {"width": 4}
SPLITS = (("train", 10), ("validation", 4))


def asked(data: dict[str, Any], **changes: Any) -> DataSpec:
    return DataSpec.model_validate({"workload": "image-classification", "data": data | changes})


def opened(spec: DataSpec, prepared: Prepared, **work: Any) -> Workload:
    run = run_on(spec, prepared, model=TINY, **{"batch_per_worker": 4} | work)
    return open_workload(run.work, prepared.path, Conditions(), prepared.path)


def draw_images(folder: Path, of_each: int = 6) -> None:
    """Wide, high and square images of one colour, with a white line along the longer sides."""
    for name, colour in COLOURS.items():
        (folder / name).mkdir(parents=True)
        for number in range(of_each):
            size = [(40, 20), (20, 40), (24, 24)][number % 3]
            image = Image.new("RGB", size, colour)
            image.paste((255, 255, 255), (0, 0, size[0], 1) if size[0] >= size[1] else (0, 0, 1, size[1]))
            image.save(folder / name / f"{number}.{['png', 'jpg', 'bmp'][number % 3]}", quality=95)


def test_digits_are_those_of_scikit_learn(tmp_path: Path) -> None:
    from sklearn.datasets import load_digits

    spec = asked(DIGITS, size=8)
    prepared = prepare(spec, Place(), tmp_path)
    workload = opened(spec, prepared)
    seen, batch = set(), workload.batch("train", torch.arange(200), 1)
    mean, deviation = (load(prepared.path / "dataset.json")[name][0] for name in ("mean", "deviation"))
    pixels = (batch["pixel_values"] * deviation + mean) * 16
    real = load_digits()
    known = {image.tobytes(): label for image, label in zip(real.images, real.target, strict=True)}
    for image, label in zip(pixels[:, 0], batch["labels"].tolist(), strict=True):
        found = image.round().double().numpy().tobytes()
        assert known[found] == label
        seen.add(found)
    assert len(seen) == 200
    assert torch.allclose(batch["pixel_values"].mean(), torch.zeros(()), atol=1e-5)
    assert torch.allclose(batch["pixel_values"].std(), torch.ones(()), atol=1e-3)
    again = prepare(spec, Place(), tmp_path)
    assert (again.digest, again.created) == (prepared.digest, False)


def test_a_folder_for_each_class(tmp_path: Path) -> None:
    draw_images(tmp_path / "mine")
    spec = asked(FOLDERS)
    prepared = prepare(spec, Place(tmp_path), tmp_path / "data")
    description = load(prepared.path / "dataset.json")
    assert description["classes"] == ["blue", "green", "red"]
    assert description["counts"]["train"]["classes"] == {"blue": 4, "green": 4, "red": 4}
    workload = opened(spec, prepared)
    for split, size in (("train", 12), ("validation", 6)):
        batch = workload.batch(split, torch.arange(size), 1)
        assert batch["pixel_values"].shape == (size, 3, 12, 12)
        # The middle of each is of its class's colour alone.
        strongest = batch["pixel_values"][:, :, 6, 6].argmax(dim=1)
        assert (strongest == 2 - batch["labels"]).all()


def test_the_middle_is_cut_out_at_the_shorter_sides_size(tmp_path: Path) -> None:
    for name in ("left", "right"):
        (tmp_path / "mine" / name).mkdir(parents=True)
        for number in range(2):
            image = Image.new("L", (40, 20), 0)
            image.paste(255, (10, 0, 30, 20) if name == "left" else (0, 0, 40, 20))
            image.save(tmp_path / "mine" / name / f"{number}.png")
    spec = asked(FOLDERS, train=2, validation=2, size=10, channels=1)
    workload = opened(spec, prepare(spec, Place(tmp_path), tmp_path / "data"), batch_per_worker=2)
    pixels = workload.batch("train", torch.arange(2), 1)["pixel_values"]
    # What was cut off is all that differed, but for the edges, where scaling blends.
    assert torch.equal(pixels[0, :, :, 1:-1], pixels[1, :, :, 1:-1])


def test_validation_may_have_its_own_folder(tmp_path: Path) -> None:
    draw_images(tmp_path / "mine")
    draw_images(tmp_path / "other", of_each=2)
    spec = asked(FOLDERS, train=18, validation_folder="other")
    prepared = prepare(spec, Place(tmp_path), tmp_path / "data")
    assert load(prepared.path / "dataset.json")["counts"]["validation"]["classes"]["red"] == 2
    (tmp_path / "other" / "violet").mkdir()
    (tmp_path / "other" / "violet" / "1.png").write_bytes((tmp_path / "mine/red/0.png").read_bytes())
    with pytest.raises(DataError, match=r"other has the class violet, which .*mine lacks"):
        prepare(spec, Place(tmp_path), tmp_path / "data")


def test_what_is_wrong_with_the_images_is_said(tmp_path: Path) -> None:
    spec = asked(FOLDERS)
    with pytest.raises(DataError, match=r"There is no folder .*mine with images"):
        prepare(spec, Place(tmp_path), tmp_path / "data")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "1.png").write_bytes(b"")
    with pytest.raises(DataError, match="no folders with images: give each class a folder with its name"):
        prepare(spec, Place(tmp_path), tmp_path / "data")
    draw_images(tmp_path / "mine")
    with pytest.raises(DataError, match=r"\(30 for train and 6 for validation\) than the 18"):
        prepare(asked(FOLDERS, train=30), Place(tmp_path), tmp_path / "data")
    whole = (tmp_path / "mine/red/0.png").read_bytes()
    for content, said in ((b"no image", r"0.png is no image"), (whole[: len(whole) // 2], "can't be read")):
        (tmp_path / "mine/red/0.png").write_bytes(content)
        with pytest.raises(DataError, match=said):
            prepare(spec, Place(tmp_path), tmp_path / "data")
    assert not list((tmp_path / "data").glob("*"))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"size": 4}, "data.size: input should be greater than or equal to 8"),
        ({"train_folder": "mine"}, "data: train_folder goes with source: folders, and only with it"),
        ({"validation_folder": "mine"}, "data: validation_folder needs a train_folder"),
        ({"augmentation": "flip"}, "data.augmentation: input should be 'none', 'move' or 'move-mirror'"),
    ],
)
def test_what_is_wrong_with_its_settings_is_said(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as caught:
        asked(DIGITS, **changes)
    assert said in explain(caught.value)


@pytest.mark.parametrize(
    ("work", "alone"),
    [
        ({"workers": 2, "batch_per_worker": 11}, 1),  # 200 = 9 x 22 + 2: one for each rank
        ({"workers": 4, "batch_per_worker": 33}, None),  # 68 remain: 17 for each
        ({"workers": 2, "batch_per_worker": 11, "last_batch": "drop"}, None),
        ({"batch_per_worker": 5, "gradient_accumulation": 2}, None),  # 3 and 2
        ({"batch_per_worker": 4, "gradient_accumulation": 3}, None),  # 2 and 2
        ({"batch_per_worker": 5, "gradient_accumulation": 3}, 1),  # 2, 2 and 1
    ],
)
def test_a_batch_too_small_to_normalise_over_is_refused(work: dict[str, Any], alone: int | None) -> None:
    spec = asked(DIGITS)
    nowhere = Prepared("0" * 64, Path(), created=False)
    if alone is None:
        assert run_on(spec, nowhere, **work).work.smallest_part > 1
        return
    with pytest.raises(ValidationError) as caught:
        run_on(spec, nowhere, **work)
    said = f"a rank would compute {alone} of its samples alone, but this model needs 2 at once"
    assert said in explain(caught.value)
    assert run_on(asked(DIGITS, size=33), nowhere, **work).work.smallest_part == alone


def test_augmentation_depends_on_seed_epoch_and_sample_alone(tmp_path: Path) -> None:
    plain, moved, mirrored = (
        opened(spec, prepare(spec, Place(), tmp_path))
        for spec in (asked(DIGITS, augmentation=kind) for kind in ("none", "move", "move-mirror"))
    )
    numbers = torch.arange(40)

    def images(workload: Workload, epoch: int = 1, split: str = "train") -> torch.Tensor:
        batch: Batch = workload.batch(split, numbers, epoch)
        return batch["pixel_values"]

    assert torch.equal(images(moved, split="validation"), images(plain, split="validation"))
    assert torch.equal(images(plain, 1), images(plain, 2))
    assert torch.equal(images(moved), images(moved))
    assert torch.equal(images(pickle.loads(pickle.dumps(moved))), images(moved)), "also in another process"
    assert not torch.equal(images(moved, 1), images(moved, 2))
    alone = moved.batch("train", torch.tensor([7]), 1)["pixel_values"]
    assert torch.equal(alone[0], images(moved)[7])
    other = opened(
        asked(DIGITS, augmentation="move"),
        Prepared(moved.work.data_digest, moved.dataset.path, False),
        seed=4,
    )
    assert not torch.equal(images(other), images(moved))

    shifts, flips = set(), set()
    for before, after, turned in zip(images(plain), images(moved), images(mirrored), strict=True):
        edged = np.pad(before[0].numpy(), 2, mode="edge")
        views = {(y, x): edged[y : y + 16, x : x + 16] for y in range(5) for x in range(5)}
        shifts |= {place for place, view in views.items() if np.array_equal(view, after[0].numpy())}
        flips |= {
            flip
            for view in views.values()
            for flip in (False, True)
            if np.array_equal(view[:, ::-1] if flip else view, turned[0].numpy())
        }
    assert len(shifts) > 12
    assert flips == {False, True}


@pytest.mark.parametrize(
    ("layers", "parameters"),  # with 1,000 classes, as He et al.'s networks are known
    [(18, 11_689_512), (34, 21_797_672), (50, 25_557_032), (101, 44_549_160), (152, 60_192_808)],
)
def test_networks_have_the_known_numbers_of_parameters(layers: int, parameters: int) -> None:
    data = Data.model_validate(DIGITS | {"channels": 3, "size": 224})
    with torch.device("meta"):
        network = build_network(Model.model_validate({"layers": layers}), data, 1000, Path())
    assert sum(each.numel() for each in network.parameters()) == parameters


def test_two_classes_have_the_metrics_of_two(run: Run, tmp_path: Path) -> None:
    draw_images(tmp_path / "mine")
    spec, three = asked(FOLDERS, train=8, validation=4), asked(FOLDERS)
    work: dict[str, Any] = {"model": TINY, "batch_per_worker": 4, "learning_rate": 1e-3}
    conditions = Conditions(metrics=["f1", "auroc"])
    prepared = prepare(three, Place(tmp_path), tmp_path / "data")
    with pytest.raises(DataError, match="there is no f1 for data of 3 classes; there are f1_macro, auroc, m"):
        open_workload(run_on(three, prepared, **work).work, prepared.path, conditions, tmp_path)
    shutil.rmtree(tmp_path / "mine" / "green")
    prepared = prepare(spec, Place(tmp_path), tmp_path / "data")
    wanted = RunSpec(stack="test", work=run_on(spec, prepared, **work).work, conditions=conditions)
    out, statuses = run(wanted, prepared.path)
    assert statuses == [0]
    assert {"validation_f1", "validation_auroc"} <= set(load(out / "result.json")["epochs"][0])
    digits = run_on(asked(DIGITS), prepared, model=TINY).work
    with pytest.raises(ValidationError, match="there is no f1 for these data; there are f1_macro"):
        RunSpec(stack="test", work=digits, conditions=conditions)


@pytest.mark.parametrize(("channels", "mode"), [(3, "RGB"), (1, "L")])
def test_what_comes_home_sees_images_as_training_does(tmp_path: Path, channels: int, mode: str) -> None:
    from transformers import AutoImageProcessor

    processors: Any = AutoImageProcessor
    size, draw = 16, np.random.default_rng(1)
    # Wide, high, square; the last two have longer sides that scale to no whole number.
    sides = [(64, 32), (32, 96), (20, 20), (16, 16), (8, 12), (50, 30), (31, 47)]
    for name in ("a", "b"):
        (tmp_path / "mine" / name).mkdir(parents=True)
        for number, (wide, high) in enumerate(sides):
            image = Image.fromarray(draw.integers(0, 256, (4, 4, 3), dtype=np.uint8)).convert(mode)
            image = image.resize((wide, high), Image.Resampling.BICUBIC)
            image.save(tmp_path / "mine" / name / f"{number}.png")
    spec = asked(FOLDERS, train=10, validation=4, size=size, channels=channels)
    prepared = prepare(spec, Place(tmp_path), tmp_path / "data")
    workload = opened(spec, prepared, batch_per_worker=2)
    workload.save_model(workload.build_model(), tmp_path / "home")
    processor = processors.from_pretrained(tmp_path / "home")
    seen = torch.cat([workload.batch(split, torch.arange(n), 1)["pixel_values"] for split, n in SPLITS])
    for path in sorted((tmp_path / "mine").rglob("*.png")):
        with Image.open(path) as image:
            found = processor(image, return_tensors="pt")["pixel_values"][0]
            whole = max(image.size) * size % min(image.size) == 0
        assert found.shape == (channels, size, size)
        off = (seen - found).abs().amax(dim=(1, 2, 3)).sort().values  # in deviations
        # Half a pixel aside at most, where the longer side gets one less; other images are further off.
        assert off[0] < (1e-5 if whole else 0.8) and off[1] > 1, path


def test_it_learns_and_comes_home_with_its_preprocessing(run: Run, tmp_path: Path) -> None:
    from transformers import AutoModelForImageClassification

    spec = asked(DIGITS, augmentation="move")
    prepared = prepare(spec, Place(), tmp_path / "data")
    work = {"workers": 2, "epochs": 8, "batch_per_worker": 10, "optimiser": "sgd", "learning_rate": 0.03}
    kept = {"checkpoint_every_epochs": 1, "model": {"width": 8}}
    wanted = run_on(spec, prepared, **work | kept)
    out, statuses = run(wanted, prepared.path)
    assert statuses == [0, 0]
    last = load(out / "result.json")["epochs"][-1]
    assert last["validation_accuracy"] > 0.4  # chance is 0.1
    assert last["validation_accuracy"] < last["validation_top_5_accuracy"] <= 1
    home = export(wanted, prepared.path, out, tmp_path / "network")
    network = AutoModelForImageClassification.from_pretrained(home)
    assert network.config.id2label == {number: str(number) for number in range(10)}
    workload = opened(spec, prepared)
    batch = workload.batch("validation", torch.arange(50), 1)
    right = (network.eval()(batch["pixel_values"]).logits.argmax(dim=1) == batch["labels"]).sum()
    assert right.item() == last["validation_correct"]

    # What came home is a pretrained network for other images; they are normalised as it was trained.
    again = asked(DIGITS, pretrained="network")
    second = prepare(again, Place(tmp_path), tmp_path / "data")
    described = [load(each.path / "dataset.json") for each in (prepared, second)]
    assert (
        described[0]["mean"] == described[1]["mean"]
        and described[0]["deviation"] == described[1]["deviation"]
    )
    tuned = run_on(again, second, **work | {"model": {"init": "pretrained"}, "epochs": 1})
    out, statuses = run(tuned, second.path)
    assert statuses == [0, 0]
    assert load(out / "result.json")["epochs"][0]["train_loss"] < 2.0
    with pytest.raises(DataError, match=r"network takes images of 1 channels, but data\.channels is 3"):
        prepare(asked(DIGITS, pretrained="network", channels=3), Place(tmp_path), tmp_path / "data")
    (home / "preprocessor_config.json").unlink()
    with pytest.raises(DataError, match="holds no network that can be loaded"):
        prepare(again, Place(tmp_path), tmp_path / "data")
