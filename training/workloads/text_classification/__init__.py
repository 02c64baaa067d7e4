"""Text classification: a transformer encoder tells a text's class."""
