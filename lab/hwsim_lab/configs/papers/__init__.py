"""The claims of the papers; installed as hwsim.configs.papers."""
