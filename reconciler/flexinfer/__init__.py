"""Documents of FlexInfer."""
