"""Tells people elsewhere: webhooks, Slack, PagerDuty."""
