"""A reconciler that stays beside its clusters: who leads, what is written and what is served, as
the listeners of one loop."""
