"""What a fleet of guards needs: measured costs, and a simulator of queues that is fed with them."""
