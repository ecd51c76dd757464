"""What a first hour with the guard costs: ``guard init`` on real servers and honest work."""
