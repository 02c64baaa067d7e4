"""Sending only touched rows, against plain DDP: the same weights, and fewer numbers on their way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from tests.unit.training.distributed.test_collective import BareSession
from tests.unit.training.training_helpers import Datasets, Ranks, Run, data_spec, load, run_spec
from training.distributed.collective import gather, join, leave, replicate
from training.distributed.gradients import choose_sync
from training.errors import WorkloadError
from training.spec import Work
from training.weights import weights_digest

WORDS, WIDTH, LENGTH = 2000, 32, 12


class Encoder(torch.nn.Module):
    """Looks words up in one table, with padding, through two modules, and places in another."""

    def __init__(self, *, tied: bool = False, recompute: bool = False) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.words = torch.nn.Embedding(WORDS, WIDTH, padding_idx=0)
        self.again = torch.nn.Embedding(WORDS, WIDTH)
        self.again.weight = self.words.weight
        self.places = torch.nn.Embedding(LENGTH, WIDTH)
        self.inner = torch.nn.Sequential(
            torch.nn.Linear(WIDTH, 300), torch.nn.Tanh(), torch.nn.Linear(300, 300)
        )
        self.last = torch.nn.Linear(300, WIDTH)
        self.decoder = torch.nn.Linear(WIDTH, WORDS if tied else 3, bias=False)
        if tied:
            self.decoder.weight = self.words.weight
        self.recompute = recompute

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        looked_up = (
            checkpoint(self.look_up, ids, use_reentrant=False) if self.recompute else self.look_up(ids)
        )
        found: torch.Tensor = self.decoder(self.last(self.inner(looked_up)).mean(dim=1))
        return found

    def look_up(self, ids: torch.Tensor) -> torch.Tensor:
        places = self.places(input=torch.arange(ids.shape[1], dtype=torch.int32))
        words: torch.Tensor = self.words(ids) + self.again(ids.flip(0).int()) + places
        return words


class Careless(Encoder):
    """Takes a row of the table that it has not looked up."""

    def look_up(self, ids: torch.Tensor) -> torch.Tensor:
        return super().look_up(ids) + self.words.weight[WORDS - 1]


class Shifted(torch.nn.Embedding):
    """Looks up other rows than it is given."""

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return super().forward(ids + 1)


def some_words(numbers: torch.Generator, below: int = WORDS - 1) -> torch.Tensor:
    ids = torch.randint(1, below, (4, LENGTH), generator=numbers)
    ids[:, LENGTH - 2 :] = 0  # padding
    return ids


Optimiser = Callable[[Any], torch.optim.Optimizer]
OPTIMISERS: dict[str, Optimiser] = {
    "adamw": lambda weights: torch.optim.AdamW(weights, lr=0.01, weight_decay=0.1, fused=True),
    "sgd": lambda weights: torch.optim.SGD(weights, 0.1, 0.9, weight_decay=0.01, fused=True),
}


def train(
    replica: Any, rank: int, optimiser: torch.optim.Optimizer, steps: int = 5, below: int = WORDS
) -> None:
    """Steps of two parts each, with clipping; a rank may have no sample, and evaluates in between."""
    numbers = torch.Generator().manual_seed(rank)
    for step in range(steps):
        for part in (1, 2):
            with replica.no_sync() if part == 1 else nullcontext():
                weight = 0.0 if (step, rank) == (2, 1) else 1.0
                (replica(some_words(numbers, below)).square().mean() * weight).backward()
            if part == 1:
                replica(some_words(numbers, below))  # nobody asks for its gradients
        torch.nn.utils.clip_grad_norm_(replica.parameters(), 0.05)
        optimiser.step()
        optimiser.zero_grad()
        with torch.inference_mode():
            replica.module(torch.arange(WORDS).reshape(-1, 10))


@contextmanager
def numbers_sent() -> Iterator[list[tuple[torch.dtype, int]]]:
    """The type and size of all that is summed over the ranks in the meantime."""
    sent: list[tuple[torch.dtype, int]] = []
    real = dist.all_reduce

    def noting(tensor: torch.Tensor, *rest: Any, **named: Any) -> Any:
        sent.append((tensor.dtype, tensor.numel()))
        return real(tensor, *rest, **named)

    with mock.patch.object(dist, "all_reduce", noting):
        yield sent


def ended(session: BareSession, out: Path, replicas: list[Any]) -> None:
    """Leave the others, and a sign that all went well."""
    replicas.clear()
    leave(session)
    (out / f"{session.rank}").touch()


def compare(out: Path, optimiser: str, recompute: bool) -> None:
    torch.set_num_threads(1)
    session = BareSession()
    join(session)
    plain, ours = Encoder(recompute=recompute), Encoder(recompute=recompute)
    replicas: list[Any] = [DistributedDataParallel(plain)]
    train(replicas[0], session.rank, OPTIMISERS[optimiser](plain.parameters()))
    replicas.append(replicate(ours, session, lambda: None, "rows"))
    with numbers_sent() as sent:
        train(replicas[1], session.rank, OPTIMISERS[optimiser](ours.parameters()))
    found = [weights_digest(model.state_dict()) for model in (plain, ours, Encoder())]
    assert len(set(gather(session, found[1]))) == 1
    assert found[0] != found[2]
    if session.world_size == 2:
        assert found[0] == found[1]
    for one, other in zip(plain.parameters(), ours.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-5)
    whole = sum(parameter.numel() for parameter in plain.parameters())
    gradients = sum(count for dtype, count in sent if dtype == torch.float32) / 5
    # A rank looks up at most 4 x 10 words, and 0, in each of the three forward passes of a step.
    others = whole - WORDS * WIDTH - LENGTH * WIDTH
    assert others < gradients <= others + (121 * session.world_size + LENGTH) * WIDTH < whole
    ended(session, out, replicas)


@pytest.mark.parametrize(
    ("world_size", "optimiser", "recompute"),
    [(2, "adamw", False), (2, "sgd", False), (2, "adamw", True), (3, "adamw", False)],
)
def test_touched_rows_give_the_weights_of_plain_ddp(
    ranks: Ranks, tmp_path: Path, world_size: int, optimiser: str, recompute: bool
) -> None:
    """To the last bit with two ranks; with three, within 1e-5 of weights of about 1."""
    assert ranks(world_size, compare, (tmp_path, optimiser, recompute)) == [0] * world_size
    assert len(list(tmp_path.iterdir())) == world_size


def send_early(out: Path) -> None:
    torch.set_num_threads(1)
    session = BareSession()
    join(session)
    model, order = Encoder(), list[str]()
    first = next(model.inner.parameters())
    first.register_hook(lambda _: order.append("first layer"))  # type: ignore[no-untyped-call]
    replicas: list[Any] = [replicate(model, session, lambda: order.append("last part"), "rows")]
    real = dist.all_reduce

    def noting(tensor: torch.Tensor, *rest: Any, **named: Any) -> Any:
        if tensor.dtype == torch.float32:
            order.append("sent")
        return real(tensor, *rest, **named)

    numbers = torch.Generator().manual_seed(session.rank)
    with mock.patch.object(dist, "all_reduce", noting):
        for _ in range(3):  # after the first, DistributedDataParallel arranges the parts anew
            order.clear()
            replicas[0](some_words(numbers)).square().mean().backward()
    assert order.index("sent") < order.index("first layer") < order.index("last part")
    assert order[-1] == "sent" and order.count("sent") >= 3
    ended(session, out, replicas)


def test_gradients_are_sent_while_the_backward_pass_goes_on(ranks: Ranks, tmp_path: Path) -> None:
    assert ranks(2, send_early, (tmp_path,)) == [0, 0]
    assert len(list(tmp_path.iterdir())) == 2


def touch_most(out: Path) -> None:
    torch.set_num_threads(1)
    session = BareSession()
    join(session)
    plain, ours = Encoder(), Encoder()
    replicas: list[Any] = [DistributedDataParallel(plain), replicate(ours, session, lambda: None, "rows")]
    ids = torch.arange(WORDS // 2 + 1).reshape(-1, 11)  # with the padding, one row more than half
    with numbers_sent() as sent:
        for replica in replicas:
            replica(ids).square().mean().backward()
    assert max(count for _, count in sent) >= WORDS * WIDTH
    for one, other in zip(plain.parameters(), ours.parameters(), strict=True):
        assert one.grad is not None and other.grad is not None and torch.equal(one.grad, other.grad)
    ended(session, out, replicas)


def test_a_table_of_which_most_is_touched_is_sent_whole(ranks: Ranks, tmp_path: Path) -> None:
    assert ranks(2, touch_most, (tmp_path,)) == [0, 0]
    assert len(list(tmp_path.iterdir())) == 2


def send_sparse(out: Path) -> None:
    torch.set_num_threads(1)
    session = BareSession()
    join(session)
    digests, replicas = set(), list[Any]()
    for how in ("plain", "dense"):
        torch.manual_seed(1)
        table = torch.nn.Embedding(WORDS, WIDTH, sparse=True)
        model = torch.nn.Sequential(table, torch.nn.Linear(WIDTH, 3))
        replicas.append(
            DistributedDataParallel(model) if how == "plain" else replicate(model, session, lambda: None, how)
        )
        optimiser = torch.optim.SGD(model.parameters(), 0.1, 0.9, foreach=False)
        numbers = torch.Generator().manual_seed(session.rank)
        for _ in range(4):
            replicas[-1](some_words(numbers)).square().sum().backward()
            assert table.weight.grad is not None and table.weight.grad.is_sparse
            optimiser.step()
            optimiser.zero_grad()
        digests.add(weights_digest(model.state_dict()))
    assert len(digests) == 1
    ended(session, out, replicas)


def test_sparse_gradients_are_sent_as_plain_ddp_sends_them(ranks: Ranks, tmp_path: Path) -> None:
    assert ranks(2, send_sparse, (tmp_path,)) == [0, 0]
    assert len(list(tmp_path.iterdir())) == 2


def use_otherwise(out: Path) -> None:
    torch.set_num_threads(1)
    session = BareSession()
    join(session)
    replicas: list[Any] = [replicate(Careless(), session, lambda: None, "rows")]
    ids = some_words(torch.Generator().manual_seed(session.rank))
    with pytest.raises(RuntimeError, match=r"1 rows .* such as row 1999; use gradient_sync: dense"):
        replicas[0](ids).square().mean().backward()
    (out / f"{session.rank}").touch()


def test_a_row_that_was_not_looked_up_must_have_no_gradient(ranks: Ranks, tmp_path: Path) -> None:
    ranks(2, use_otherwise, (tmp_path,))  # which can't leave: a backward pass was cut off
    assert len(list(tmp_path.iterdir())) == 2


def compress(out: Path) -> None:
    torch.set_num_threads(1)
    session = BareSession()
    join(session)
    sizes, replicas, trained = [], [], []
    for whole_steps in (2, 99):
        model = Encoder()
        before = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
        with mock.patch.object(dist, "_DEFAULT_FIRST_BUCKET_BYTES", 1000):  # as if the model were large
            replicas.append(replicate(model, session, lambda: None, "powersgd", whole_steps))
        with numbers_sent() as sent:
            train(replicas[-1], session.rank, OPTIMISERS["sgd"](model.parameters()))
        sizes.append(sum(count for _, count in sent))
        if whole_steps == 99:  # all in one part: with several, ranks may send theirs in different orders
            assert len({count for _, count in sent}) == 1
        assert all(parameter.isfinite().all() for parameter in model.parameters())
        assert len(set(gather(session, weights_digest(model.state_dict())))) == 1
        trained.append(torch.nn.utils.parameters_to_vector(model.parameters()).detach() - before)
    # Three steps of five are compressed, to less than a tenth.
    assert 2 / 5 < sizes[0] / sizes[1] < (2 + 3 / 10) / 5
    # What is left out of a step comes later: weights move nearly as those of whole gradients do.
    compressed, whole = trained
    assert 0 < (compressed - whole).norm() < whole.norm() / 2
    ended(session, out, replicas)


def test_powersgd_compresses_after_its_first_steps(ranks: Ranks, tmp_path: Path) -> None:
    assert ranks(2, compress, (tmp_path,)) == [0, 0]
    assert len(list(tmp_path.iterdir())) == 2


def work(batch: int, sync: str = "auto", **changes: Any) -> Work:
    """Of two ranks, whose samples have 16 tokens."""
    data = {"train": 100_000, "validation": 20, "seed": 1, "max_length": 16}
    fields = {"data": data, "data_digest": "0" * 64, "workers": 2, "epochs": 1, "seed": 1}
    return Work.model_validate(fields | {"batch_per_worker": batch, "gradient_sync": sync} | changes)


def test_auto_goes_by_the_tokens_of_a_step_and_the_size_of_the_table() -> None:
    assert choose_sync(Encoder(), work(250)) == "rows"  # 2 x 250 x 16 tokens, 2,000 rows
    assert choose_sync(Encoder(), work(251)) == "dense"
    assert choose_sync(Encoder(tied=True), work(1)) == "dense"  # a decoder touches every row
    assert choose_sync(torch.nn.Linear(2, 2), work(1)) == "dense"
    assert choose_sync(Shifted(WORDS, WIDTH), work(1)) == "dense"
    assert choose_sync(torch.nn.Embedding(WORDS, WIDTH), work(1)) == "rows"
    assert choose_sync(torch.nn.Embedding(WORDS, WIDTH, sparse=True), work(1)) == "dense"
    large = torch.nn.Sequential(
        torch.nn.Embedding(WORDS, WIDTH), torch.nn.Linear(WIDTH * 9, WORDS, bias=False)
    )
    assert choose_sync(large, work(1)) == "rows"  # a tenth of the parameters
    large.append(torch.nn.Linear(1, 1))
    assert choose_sync(large, work(1)) == "dense"
    frozen = Encoder()
    frozen.words.requires_grad_(requires_grad=False)
    assert choose_sync(frozen, work(1)) == "dense"
    digits = {"source": "digits", "train": 100, "validation": 20, "seed": 1, "size": 8}
    images: dict[str, Any] = {"workload": "image-classification", "data": digits, "last_batch": "drop"}
    # Nobody knows how many rows a sample touches.
    assert choose_sync(Encoder(), work(2, **images)) == "dense"
    for sync in ("dense", "rows", "bf16", "fp16", "powersgd"):
        assert choose_sync(Encoder(), work(500, sync)) == sync


def test_rows_are_refused_where_there_is_no_table() -> None:
    with pytest.raises(WorkloadError, match=r"needs an nn\.Embedding .* text-classification has none"):
        choose_sync(torch.nn.Linear(2, 2), work(1, "rows"))


def test_runs_say_what_they_chose_and_end_with_the_same_bits(run: Run, datasets: Datasets) -> None:
    prepared = datasets(data_spec())
    digests = set()
    for asked, chosen in (("dense", "dense"), ("rows", "rows"), ("auto", "rows")):
        settings = {"workers": 2, "gradient_accumulation": 2, "clip_gradients": 0.05, "gradient_sync": asked}
        out, statuses = run(run_spec(prepared, data_spec(), **settings), prepared.path)
        assert statuses == [0, 0]
        assert [load(out / f"rank-{rank}.json")["gradient_sync"] for rank in (0, 1)] == [chosen, chosen]
        digests.add(load(out / "result.json")["weights_digest"])
    assert len(digests) == 1
    out, statuses = run(run_spec(prepared, data_spec(), gradient_sync="rows"), prepared.path)
    assert statuses == [0] and load(out / "rank-0.json")["gradient_sync"] is None
