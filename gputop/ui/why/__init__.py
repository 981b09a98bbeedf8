"""The findings of all devices, with their evidence."""
