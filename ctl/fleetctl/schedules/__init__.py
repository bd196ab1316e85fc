"""When a runbook is due: cron expressions, time zones, missed runs, and the lines that cron and systemd get."""
