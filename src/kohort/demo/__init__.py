"""`kohort demo`: a shop whose orders are read by a consumer group, watched while members crash and are replaced.

Everything is real: an embedded broker, readers in processes of their own, Spark queries, kill -9. Nothing here is part
of the library.
"""
