"""From one revision of a fleet to the next, lane by lane: what is in force meanwhile, and when it goes on or back."""
