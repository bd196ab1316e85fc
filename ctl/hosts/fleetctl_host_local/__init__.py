"""This machine as a host: a fleet's controller and gateway are processes of the user who brought it up."""
