"""What is wrong, and why: rules over what the machine says, each with its evidence. Pure."""
