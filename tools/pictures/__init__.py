"""The pictures of README and docs, as functions that run Gristmill and draw what comes out.

`svg` is the canvas; every other module draws one picture or two. tools/draw_pictures.py writes the
files.
"""
