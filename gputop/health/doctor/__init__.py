"""Checks of driver, devices, torch and gputop: facts are gathered, pure functions judge them."""
