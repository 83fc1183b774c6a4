"""`cc-tts pool`: places speech workers on the devices of a Ray cluster, and tells servers about them. No audio passes
through it.
"""
