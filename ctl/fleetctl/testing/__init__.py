"""Shipped fakes that implement the ports, clocks that do not wait, and the virtual-time loop."""
