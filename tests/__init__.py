"""Tests of fleet-reconciler: real parts, no mocks of our own modules."""
