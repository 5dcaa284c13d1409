"""`mlhood run`: execute the course's notebooks, and report marks and outputs.

In: notebooks. Out: executed copies, a page and `marks.json` (`run`, `report`), in a folder that keeps results of
different runs apart (`output_folder`). `outputs` shows what the notebooks draw, `variant` runs those of a variant.
"""
