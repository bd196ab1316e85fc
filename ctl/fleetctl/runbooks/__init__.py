"""Runs runbooks: steps on a fleet, recorded before and after, resumed where they were cut."""
