"""Text Generation Inference as an engine of fleetctl: `text-generation-launcher`, flags and series of 3.3.7."""
