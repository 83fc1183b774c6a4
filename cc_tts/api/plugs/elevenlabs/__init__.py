"""ElevenLabs' speech API: its HTTP routes and its two WebSockets, as its client packages, Pipecat and LiveKit use them."""
