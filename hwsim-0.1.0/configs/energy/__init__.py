"""Assumed energies of operations and bytes by chip; installed as hwsim.configs.energy."""
