"""What a device's units do to arrays of codes and values: elementwise lanes, scaled accumulators, exact sums."""
