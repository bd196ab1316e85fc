"""The Kubernetes provider: each replica is a pod of an existing cluster."""
