"""Dataflows of Huawei's DaVinci cores: coupled (910A), and separated cube and vector cores (910B)."""
