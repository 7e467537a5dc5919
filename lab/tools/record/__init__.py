"""Sources of the recorder. Installed as hwsim.record_sources, where hwsim.golden.recorder finds them."""
