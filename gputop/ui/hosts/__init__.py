"""Page of many hosts: one line per host, worst first."""
