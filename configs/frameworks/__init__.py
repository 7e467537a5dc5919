"""How frameworks call libraries; installed as hwsim.configs.frameworks."""
