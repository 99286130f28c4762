"""The page: what status and plan say, for a browser.

It is made of the documents of `status -o json` and `plan -o json` alone, whole without JavaScript.
"""
