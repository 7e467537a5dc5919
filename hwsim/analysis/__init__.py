"""What is worked out of operands, products and timings: inputs, error metrics, roofline, what-if."""
