"""Builders and real parts that several tests share."""
