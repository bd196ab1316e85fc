"""The live face: one screen over the controller's stream, and the same as one frame of plain text."""
