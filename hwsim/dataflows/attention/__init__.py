"""Programs of attention: two products with an online softmax between, for GPUs of the families sm80, sm90 and sm100."""
