"""Names of chips as people write them; installed as hwsim.configs.names."""
