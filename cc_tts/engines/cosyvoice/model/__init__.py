"""The files of a model directory: their check, their download and their networks."""
