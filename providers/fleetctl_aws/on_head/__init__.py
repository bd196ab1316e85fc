"""What runs on a head before fleetctl is there: the system's own Python, nothing else."""
