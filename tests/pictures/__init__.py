"""`make pictures`: what the program prints, as SVG pictures for README.

Those of docs/pictures that no program draws are drawn by hand.
"""
