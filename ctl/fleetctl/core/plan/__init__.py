"""SLO + workload + offerings -> replicas, launch settings, cost, forecast."""
