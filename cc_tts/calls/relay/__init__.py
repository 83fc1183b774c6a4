"""Relays: conversations of calls with applications that are written for ConversationRelay."""
