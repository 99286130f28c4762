"""The kinds of the fleet as CustomResourceDefinitions."""
