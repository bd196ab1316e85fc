"""Lane choice, bounded queues, deadlines, shed reasons."""
