"""Documents of FlexInfer, whose ModelDeployment is a Model and an InferenceService of ours.

`deployments` is the table, a row for each field; `backends` says which engines are here and where a
model comes from; `translate` makes the two documents. Facts: the definition of its ModelDeployment
(ai.flexinfer/v1alpha1), from July 2025 to its last one of 2026. Its v1alpha2 is not read.
"""
