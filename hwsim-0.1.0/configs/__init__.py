"""Data files of hwsim; installed as hwsim.configs."""
