"""The three ways in which Kafka has coordinated consumer groups, run side by side in virtual time.

Watchers in every consumer (0.8), a coordinator on the server that watches ZooKeeper (drafted, never released), and
today's. The first two are models of what is described of them; the third is the real broker and member code.
"""
