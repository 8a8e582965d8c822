"""The report of a profile: a static site that opens from disk, with nothing from a network or a server."""
