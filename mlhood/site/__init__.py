"""The site of the course: static pages of the notebooks, the README, the how-tos and the public interface.

In: the course's folder. Out: a folder of HTML that needs no network and no server, with search.
"""
