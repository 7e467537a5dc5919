"""Reports as text for people: runs, programs, devices, single results step by step."""
