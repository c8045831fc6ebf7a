"""What the past of a group means: its rebalances, their causes in words, what is wrong and what to change. All pure.

Values of the coordinator go in, values and sentences come out. No handler of a request has any business here.
"""
