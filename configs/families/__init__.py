"""The family files shipped with hwsim; installed as hwsim.configs.families."""
