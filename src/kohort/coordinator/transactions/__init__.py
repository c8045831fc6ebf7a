"""The transaction coordinator: states that live in `__transaction_state`, on the runtime that groups use too."""
