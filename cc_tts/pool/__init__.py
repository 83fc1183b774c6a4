"""`cc-tts pool`: places speech workers on the devices of a Ray cluster, and tells servers of them. No audio passes here."""
