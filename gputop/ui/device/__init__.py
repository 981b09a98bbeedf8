"""Page of one device."""
