"""Shows what was made of what: as a tree of lines, or as a picture in SVG. Pure; it never reads the journal."""
