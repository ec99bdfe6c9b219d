"""Collectives: matching across ranks, waiting and transfer, clocks."""
