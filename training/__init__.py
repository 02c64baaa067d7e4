"""The training job: plain PyTorch, the same whatever launched it.

A launcher calls `rank`, which does one rank's `job`: the `loop` over a `state`. `data`, `metrics` and
`distributed` serve them and do not know one another; all stand on `spec`, `session`, `errors` and `util`.
pyproject.toml holds the order, and lint checks it.

Importing this package, or `training.spec`, imports neither torch nor transformers.
"""
