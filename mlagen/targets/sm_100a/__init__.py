"""sm_100a (Blackwell: B200, GB200): its capacities."""
