"""What all tests have: the modules beside this file (lowered.py, timing_device.py) can be imported in every folder."""
