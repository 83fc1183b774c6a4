"""Handlers for transfers, bridges and incoming REFERs."""
