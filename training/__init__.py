"""The training job: plain PyTorch, the same whatever launched it.

A launcher calls `rank`, which does one rank's `job`: the `loop` over a `state`. `data`, `metrics` and
`distributed` support them and don't import each other; all build on `spec`, `session`, `errors` and `util`.
pyproject.toml defines these layers, and lint checks them.

Importing this package, or `training.spec`, imports neither torch nor transformers.
"""
