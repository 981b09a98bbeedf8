"""The data model of the stream: snapshots, their codec, and how values are named and written."""
