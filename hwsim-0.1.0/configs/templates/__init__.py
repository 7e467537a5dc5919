"""Templates of device files shipped with hwsim; installed as hwsim.configs.templates."""
