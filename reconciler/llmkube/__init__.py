"""Documents of LLMKube, whose group and kinds ours are: what becomes of the fields that only it
has.

`services` and `models` are the tables, a row for each field; `project` names them all. What a new
release of LLMKube adds is a row. Facts: its CRDs of 0.9.19, v1alpha1.
"""
