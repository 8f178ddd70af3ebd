"""The ledger in Redis: its function library and the typed asyncio client."""
