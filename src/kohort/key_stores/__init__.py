"""Java's stores of keys and certificates, for clients and brokers alike. Bytes in, PEM out."""
