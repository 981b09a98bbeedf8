"""Page of many hosts: a line for each, worst first."""
