"""What runs on a machine of the inventory, by its own Python (3.8 or newer) and nothing else. `program.py` sends it there with each call."""
