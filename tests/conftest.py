"""What all tests have: the modules beside this file (tests/lowered.py) can be imported from every folder."""
