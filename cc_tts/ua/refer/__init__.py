"""REFER: the far side of a leg is to call somebody else."""
