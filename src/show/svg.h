/* What the drawings share: the frame of an SVG file, its style in light and dark, axes that read well.
 *
 * Self-contained: no script, no outside font, colours by class so that a media query can turn them dark.
 * Widths of text are estimated, generously, since the reader's font is not known. Sizes are pixels. Tested in
 * tests/unit/show_plan_svg_test.c and tests/unit/show_sim_svg_test.c. */
#ifndef SHOW_SVG_H
#define SHOW_SVG_H

#include "show/out.h"

#define SVG_TEXT  12.0 /* size of plain text */
#define SVG_LEAST 8.0  /* size of the smallest text */

/* Everything before the first element. Lines of a chart have the classes `ln c0` .. `ln c7` (bold: 0 and 1).
 * `title` and `about` are what a screen reader and a tooltip say. */
void svg_begin(struct out *o, double width, double height, const char *title, const char *about);
void svg_end(struct out *o);

/* ` name="value"` */
void svg_attribute(struct out *o, const char *name, double value);
void svg_rect(struct out *o, const char *classes, double x, double y, double width, double height);
void svg_line(struct out *o, const char *classes, double x1, double y1, double x2, double y2);
/* Text goes between these: any text must pass out_xml. Class "e" ends at x, "m" is centred on it. */
void svg_text_begin(struct out *o, const char *classes, double x, double y);
void svg_text_end(struct out *o);
void svg_text(struct out *o, const char *classes, double x, double y, const char *text);

/* Estimated width of `characters` in a size of text. */
double svg_width(size_t characters, double size);
/* The least of 1, 2, 5 times a power of ten that is not below `least` (> 0). */
double svg_step(double least);

#endif
