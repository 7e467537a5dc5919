"""What cuBLASLt answers for a call: recorded, fitted by trees, beside a recorded one, or estimated."""
