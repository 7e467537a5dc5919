"""Tables of special functions; installed as hwsim.configs.special_functions."""
