"""Tries the plan's attempts in order until one commits: connections, time limits, what went wrong and what follows."""
