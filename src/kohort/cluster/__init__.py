"""Several brokers over one store: who is there, who leads what, and where records are kept safe.

An existing store decides, by one thing it can do: create an object of a name, once. No consensus of our own, no clock,
no lock, no overwrite carries safety. Nothing here knows of Kafka's requests; input and output is in the engines alone.
"""
