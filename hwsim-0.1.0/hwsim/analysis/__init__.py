"""Analysis of operands, products and timings: inputs, error metrics, roofline, what-if."""
