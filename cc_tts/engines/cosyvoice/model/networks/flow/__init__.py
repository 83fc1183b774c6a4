"""The flow: speech tokens to mel frames (§4)."""
