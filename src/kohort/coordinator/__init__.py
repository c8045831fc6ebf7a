"""The group coordinator, sans-IO: requests, time and stored appends in, Effects out. `coordinator.Coordinator` is it.

No I/O, no clock, no randomness in here; `broker/groups.py` is what connects it to a log and to clients.
"""
