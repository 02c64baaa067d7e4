"""Causal language modelling: a decoder learns to continue texts."""
