"""hwsim's laboratory: the papers' experiments and claims, campaigns on hardware, benches."""
