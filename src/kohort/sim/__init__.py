"""A deterministic simulator: seed -> options -> world -> checkers.

The world holds the real broker core, coordinator, log, member and fetcher; only the clock, the network, the disk and
the application around the member are simulated. The same seed gives the same run, byte for byte.
"""
