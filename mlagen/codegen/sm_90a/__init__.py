"""sm_90a: pipeline schedules to PTX."""
