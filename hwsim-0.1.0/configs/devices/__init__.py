"""The device files shipped with hwsim; installed as hwsim.configs.devices."""
