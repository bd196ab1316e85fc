"""Shipped fakes and the virtual-time loop."""
