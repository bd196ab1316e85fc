"""What follows from each key of a profile: in its plan, or only while the fleet runs."""
