"""Texts to token ids: a WordPiece vocabulary learnt from the training split."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from training.data.progress import shown
from training.errors import DataError
from training.workloads.text_classification.settings import Data

SPECIAL: Final = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")  # ids 0 to 4


def train_tokenizer(texts: Iterable[str], spec: Data) -> Tokenizer:
    """A lower-casing WordPiece tokenizer (as BERT's), its vocabulary learnt from `texts`.

    It truncates and pads to `spec.max_length` tokens, including `[CLS]` and `[SEP]`. The same
    texts give the same vocabulary, in any order; they are iterated twice.

    Raises:
        DataError: the vocabulary is too small for the characters in the texts.
    """
    learner = _bert_pipeline(models.WordPiece(unk_token="[UNK]"))
    there: set[str] = set()
    for text in shown(texts, "finding the characters"):
        there.update(text)
    # One by one, which is how the normaliser treats them in a text.
    normal = {c for character in there for c in learner.normalizer.normalize_str(character)}
    characters = sorted(character for character in normal if not character.isspace())
    # The trainer numbers word-inner characters ("##e") in the order of a hash map, which differs from one
    # process to the next (even with one thread), and breaks ties between merges by number: three runs gave
    # three vocabularies. Passed as special tokens, they are numbered first, in our order. Every character is
    # kept, so that no tie decides which are.
    inner = [f"##{character}" for character in characters]
    trainer = trainers.WordPieceTrainer(
        vocab_size=spec.vocabulary,
        special_tokens=[*SPECIAL, *inner],
        initial_alphabet=characters,
        limit_alphabet=len(characters),
        show_progress=False,
    )
    learner.train_from_iterator(shown(texts, "learning the vocabulary"), trainer)
    if learner.get_vocab_size() > spec.vocabulary:
        raise DataError(
            f"A vocabulary of {spec.vocabulary} is too small: the characters alone take "
            f"{learner.get_vocab_size()}."
        )
    # A new tokenizer with the learnt vocabulary, in which "##e" is an ordinary piece again.
    tokenizer = _bert_pipeline(models.WordPiece(learner.get_vocab(), unk_token="[UNK]"))
    tokenizer.add_special_tokens(list(SPECIAL))
    specials = [(name, tokenizer.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1" if spec.pair_column else None,
        special_tokens=specials,
    )
    tokenizer.enable_truncation(spec.max_length)
    tokenizer.enable_padding(length=spec.max_length, pad_id=0, pad_token="[PAD]")
    return tokenizer


def _bert_pipeline(model: models.Model) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer
