"""What operators use: the admin API."""
