"""Recordings of fleets: written as they run, readable however they ended."""
