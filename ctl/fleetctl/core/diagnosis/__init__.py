"""Why requests are late: one request, or a lane now."""
