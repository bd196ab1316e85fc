"""The SSH provider: replicas on machines of an inventory, over the OpenSSH client."""
