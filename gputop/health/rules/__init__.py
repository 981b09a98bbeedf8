"""Rules that find what is wrong, a module for each subject. Pure."""
