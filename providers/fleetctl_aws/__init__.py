"""The AWS provider: every node is an EC2 instance of an account."""
