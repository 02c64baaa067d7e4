"""The trained model, as a folder that `transformers` loads."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, PreTrainedTokenizerFast

from training.checkpoint import CheckpointFolder
from training.data.dataset import ENCODER, open_dataset
from training.errors import CheckpointError
from training.model import build_model
from training.spec import RunSpec

CLASSES = {0: "negative", 1: "positive"}


def export(spec: RunSpec, data: Path, out: Path, to: Path) -> Path:
    """Write weights, configuration and tokenizer of a run's newest good checkpoint into a new folder.

    Args:
        spec: the run.
        data: folder of its prepared data set.
        out: the run's folder.
        to: the new folder, for `from_pretrained` of AutoModelForSequenceClassification and AutoTokenizer.

    Raises:
        CheckpointError: there is no good checkpoint, or `to` exists.
        DataError: the data set is not the run's.
        OSError: `to` can't be written.
    """
    if to.exists():
        raise CheckpointError(f"{to} already exists; give a new folder.")
    checkpoints = CheckpointFolder(out / "checkpoints", spec.work.digest, spec.work.keep_checkpoints)
    name, faults = checkpoints.newest()
    if name is None:
        raise CheckpointError(" ".join([f"There is no good checkpoint in {checkpoints.path}.", *faults]))
    dataset = open_dataset(data, spec.work.data_digest)
    model: Any = build_model(spec.work, dataset)
    model.load_state_dict(checkpoints.read(name)["model"])
    model.config.id2label = CLASSES
    model.config.label2id = {label: number for number, label in CLASSES.items()}
    if (data / ENCODER).is_dir():
        tokenizer = AutoTokenizer.from_pretrained(data / ENCODER)
    else:
        names = {f"{kind}_token": f"[{kind.upper()}]" for kind in ("unk", "cls", "sep", "pad", "mask")}
        fast: Any = PreTrainedTokenizerFast
        tokenizer = fast(tokenizer_file=str(data / "tokenizer.json"), **names)
    tokenizer.model_max_length = spec.work.data.max_length
    to.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=".export-", dir=to.parent))
    try:
        model.save_pretrained(draft)
        tokenizer.save_pretrained(draft)
        draft.chmod(0o755)
        draft.rename(to)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return to
