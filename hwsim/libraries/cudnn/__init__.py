"""cuDNN: which kernel it takes for a convolution, and how that adds over K."""
