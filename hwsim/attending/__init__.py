"""`hwsim.attention` and what it returns."""
