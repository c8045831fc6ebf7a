"""The member of the consumer protocol (KIP-848): the coordinator assigns, heartbeats carry everything. Sans-IO."""
