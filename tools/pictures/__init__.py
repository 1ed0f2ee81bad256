"""The pictures of README and docs, as functions that run Gristmill and draw the results.

`svg` is the canvas, `sample` the text; every other module draws one or two pictures. tools/draw_pictures.py writes the
files.
"""
