"""The console: groups, their timelines and their cluster in a browser, live or from a kept history.

Reads clusters and directories, serves JSON and static files. What a past means is told by insight/, pure.
"""
