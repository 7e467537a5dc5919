"""A second reading of resolved records: one element of C in exact integers, by the words of plan, schedule and device.

It stands beside hwsim.evaluate and uses nothing of it, no kernel and no NumPy arithmetic: formats, the steps of the dot
units and look-ups in the device's data are all that both share.
"""
