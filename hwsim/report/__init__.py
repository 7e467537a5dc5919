"""Text for people: runs, programs, devices, single results step by step."""
