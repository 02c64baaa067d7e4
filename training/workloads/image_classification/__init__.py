"""Image classification: a residual network learns to tell the class of an image."""
