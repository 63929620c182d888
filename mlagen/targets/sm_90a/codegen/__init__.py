"""Pipeline schedules to PTX."""
