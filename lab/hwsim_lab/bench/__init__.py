"""Speed of hwsim's compiled parts beside libraries that do similar work."""
