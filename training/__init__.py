"""The training job: plain PyTorch, the same whatever launched it.

Importing this package, or `training.spec`, imports neither torch nor transformers.
"""
