"""A known answer: twenty steps whose weights say whether a machine computes as others do.

python -m training.known_answer --bits portable

It needs torch and transformers alone, and no other file, so that a node's Python can be given it as it is.
The work is BERT-tiny's shape from scratch on made-up tokens, with one thread and the usual batch of 32 x 128,
so that libraries choose the kernels that training has. It takes some seconds, and with portable kernels about
twice as long.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time

STEPS, BATCH, LENGTH, VOCABULARY = 20, 32, 128, 2000
PORTABLE = {"MKL_CBWR": "COMPATIBLE", "ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}
"""As training.bits has it, which this program can't import."""


def answer() -> str:
    """The digest of the weights after the last step, 64 hexadecimal digits."""
    import numpy as np
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(1)
    model = BertForSequenceClassification(
        BertConfig(
            vocab_size=VOCABULARY,
            hidden_size=128,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=512,
        )
    )
    # Fused, as in training: else AdamW calls torch.sqrt, which begins with an estimate that vendors define.
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01, fused=True)
    draw = np.random.Generator(np.random.PCG64(1))
    for _ in range(STEPS):
        ids = torch.from_numpy(draw.integers(0, VOCABULARY, (BATCH, LENGTH)))
        lengths = torch.from_numpy(draw.integers(LENGTH // 2, LENGTH + 1, (BATCH, 1)))
        mask = (torch.arange(LENGTH) < lengths).to(torch.int64)
        model(input_ids=ids, attention_mask=mask, labels=ids[:, 0] % 2).loss.backward()
        optimiser.step()
        optimiser.zero_grad()
    sha = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        sha.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        sha.update(tensor.contiguous().numpy().tobytes())
    return sha.hexdigest()


def main() -> int:
    """Compute the answer and print it as JSON, with what it depends on."""
    parser = argparse.ArgumentParser(description="Twenty steps whose weights say how a machine computes.")
    parser.add_argument("--bits", choices=("machine", "portable"), default="machine")
    bits = parser.parse_args().bits
    # Before torch is loaded, which reads them.
    os.environ |= {"OMP_NUM_THREADS": "1"} | (PORTABLE if bits == "portable" else {})
    if bits == "machine":
        for name in PORTABLE:
            os.environ.pop(name, None)
    began = time.perf_counter()
    digest = answer()
    import torch
    import transformers

    about = {
        "libraries": f"torch {torch.__version__.partition('+')[0]}, transformers {transformers.__version__}",
        "instructions": torch.backends.cpu.get_cpu_capability(),
    }
    json.dump({"bits": bits, "digest": digest, "seconds": time.perf_counter() - began} | about, sys.stdout)
    sys.stdout.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
