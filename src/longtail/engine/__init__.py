"""Prediction without torch: numpy and compiled kernels over memory-mapped arrays."""
