"""The library files shipped with hwsim; installed as hwsim.configs.libraries."""
