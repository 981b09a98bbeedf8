"""Widgets and bases of widgets that several views share."""
