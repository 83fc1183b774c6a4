"""The control API: REST, WebSockets, and the speech APIs of other vendors."""
