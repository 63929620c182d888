"""What is ordered before what: clocks of warps and agents, and the record of each access."""
