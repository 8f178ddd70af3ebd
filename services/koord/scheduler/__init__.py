"""Places pods and gangs on nodes with vectorised plugins and claims the room in the ledger."""
