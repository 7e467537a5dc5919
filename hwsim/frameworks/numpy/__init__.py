"""NumPy's products, contractions and convolutions on a simulated device."""
