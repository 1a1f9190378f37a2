/* Implementation of show/svg.h. The colours are chosen so that neighbours differ in lightness too (they print
 * in grey) and stay apart for the usual colour-blind eyes; kinds of work also differ in hatching. */
#include "show/svg.h"

#include <math.h>

static const char style_light[] =
    "text{font-family:ui-sans-serif,system-ui,'Segoe UI','Helvetica Neue',Arial,'DejaVu Sans',sans-serif;"
    "font-size:12px;fill:#1b2530}\n"
    ".bg{fill:#ffffff}.T{font-size:17px;font-weight:600}.q,.tk{fill:#5b6b7c;font-weight:400}.tk{font-size:"
    "11px}\n"
    ".b{font-weight:600}.e{text-anchor:end}.m{text-anchor:middle}.s{font-size:11px}\n"
    ".gr{stroke:#e3e8ee;stroke-width:1}.ax{stroke:#8795a5;stroke-width:1;fill:none}\n"
    ".pe{stroke:#1b2530;stroke-width:1.5;fill:none}.bo{stroke:#c2410c;stroke-width:1.5;stroke-dasharray:5 3;"
    "fill:none}.bt{fill:#c2410c}\n"
    ".wi{fill:url(#hw)}.wb{fill:#f5f7fa}.wl{stroke:#d5dce4;stroke-width:1.2;fill:none}\n"
    ".F{fill:#9cccf5}.I{fill:url(#hI)}.W{fill:url(#hW)}.B{fill:url(#hB)}.C{fill:url(#hC)}\n"
    ".Ib{fill:#f6b26b}.Il{stroke:#d8872f;stroke-width:1.3;fill:none}\n"
    ".Wb{fill:#7cc79c}.Wl{stroke:#3f9d6c;stroke-width:1.2;fill:none}\n"
    ".Bb{fill:#d4aee6}.Bl{stroke:#9a5bb8;stroke-width:1.1;fill:none}\n"
    ".Cb{fill:#f7e08a}.Cl{fill:#a98a12}\n"
    ".R{fill:#5b6b7c}.S{fill:#6d28d9}.O{fill:#b4477a}.L{fill:#1f7a8c}\n"
    ".g{stroke:#1b2530;stroke-width:1.4}.h{stroke:#1b2530;stroke-width:1.6;stroke-dasharray:3 2}"
    ".k{fill-opacity:.5}\n"
    ".n{text-anchor:middle;fill:#10202e;stroke:#ffffff;stroke-opacity:.5;stroke-width:2.6;paint-order:stroke}"
    ".t{font-size:10px}.u{font-size:8px}\n"
    ".d{fill:#e9edf2}.dl{stroke:#b3261e;stroke-width:1.5}.dt{fill:#b3261e;font-size:11px}\n"
    ".ar{fill:#dbe3ec}.al{stroke:#8795a5;stroke-width:1;fill:none}\n"
    ".ln{fill:none;stroke-width:1.4;stroke-linejoin:round}.ld{stroke:#8795a5;stroke-width:.8;fill:none}\n"
    ".c0{stroke:#0b5cad}.c1{stroke:#c2185b}.c2{stroke:#39424e}.c3{stroke:#d35400}.c4{stroke:#0f8a5f}"
    ".c5{stroke:#8e44ad}.c6{stroke:#7a5c00}.c7{stroke:#0a8ea0}\n"
    ".c0,.c1{stroke-width:2.6}.c1{stroke-dasharray:11 3 3 3}.c2{stroke-dasharray:2 2}.c3{stroke-dasharray:8 "
    "3}"
    ".c4{stroke-dasharray:4 2.5}.c5{stroke-dasharray:14 3}.c6{stroke-dasharray:7 2 2 2 2 2}"
    ".c7{stroke-dasharray:2 4}\n";

static const char style_dark[] =
    "@media (prefers-color-scheme:dark){\n"
    "text{fill:#e4eaf1}.bg{fill:#10161d}.q,.tk{fill:#93a3b5}\n"
    ".gr{stroke:#232d38}.ax{stroke:#66778a}.pe{stroke:#e4eaf1}.bo{stroke:#ff9a62}.bt{fill:#ff9a62}\n"
    ".wb{fill:#18212b}.wl{stroke:#2c3947}\n"
    ".F{fill:#2f6ea8}.Ib{fill:#b4661a}.Il{stroke:#f0ac62}.Wb{fill:#1f7a4f}.Wl{stroke:#6fd09e}\n"
    ".Bb{fill:#7b4794}.Bl{stroke:#d0a0e4}.Cb{fill:#8a7212}.Cl{fill:#f2dc7e}\n"
    ".R{fill:#93a3b5}.S{fill:#b79cff}.O{fill:#ee87b4}.L{fill:#6fd3e4}\n"
    ".g,.h{stroke:#f6f9fc}.n{fill:#ffffff;stroke:#10161d}.d{fill:#1d2630}.dl{stroke:#ff7b72}.dt{fill:#ff7b72}"
    "\n"
    ".ar{fill:#243241}.al{stroke:#66778a}\n"
    ".ld{stroke:#66778a}.c0{stroke:#6db3f8}.c1{stroke:#ff7fae}.c2{stroke:#b9c4d0}.c3{stroke:#ff9f45}"
    ".c4{stroke:#4fd39b}.c5{stroke:#cf95f0}.c6{stroke:#e3c24d}.c7{stroke:#54d6e6}\n"
    "}\n";

static const char hatches[] =
    "<defs>\n"
    "<pattern id=\"hw\" width=\"7\" height=\"7\" patternUnits=\"userSpaceOnUse\"><rect class=\"wb\" "
    "width=\"7\" "
    "height=\"7\"/><path class=\"wl\" d=\"M-1 8 8-1\"/></pattern>\n"
    "<pattern id=\"hI\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\"><rect class=\"Ib\" "
    "width=\"6\" "
    "height=\"6\"/><path class=\"Il\" d=\"M-1 1 1-1M-1 7 7-1M5 7 7 5\"/></pattern>\n"
    "<pattern id=\"hW\" width=\"6\" height=\"5\" patternUnits=\"userSpaceOnUse\"><rect class=\"Wb\" "
    "width=\"6\" "
    "height=\"5\"/><path class=\"Wl\" d=\"M0 2.5H6\"/></pattern>\n"
    "<pattern id=\"hB\" width=\"7\" height=\"7\" patternUnits=\"userSpaceOnUse\"><rect class=\"Bb\" "
    "width=\"7\" "
    "height=\"7\"/><path class=\"Bl\" d=\"M-1-1 8 8M-1 8 8-1\"/></pattern>\n"
    "<pattern id=\"hC\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\"><rect class=\"Cb\" "
    "width=\"5\" "
    "height=\"5\"/><circle class=\"Cl\" cx=\"2.5\" cy=\"2.5\" r=\"1\"/></pattern>\n"
    "</defs>\n";

void svg_attribute(struct out *o, const char *name, double value) {
    out_char(o, ' ');
    out_text(o, name);
    out_text(o, "=\"");
    out_pixels(o, value);
    out_char(o, '"');
}

void svg_begin(struct out *o, double width, double height, const char *title, const char *about) {
    out_text(o, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\"");
    svg_attribute(o, "width", width);
    svg_attribute(o, "height", height);
    out_text(o, " viewBox=\"0 0 ");
    out_pixels(o, width);
    out_char(o, ' ');
    out_pixels(o, height);
    out_text(o, "\" role=\"img\">\n<title>");
    out_xml(o, title);
    out_text(o, "</title>\n<desc>");
    out_xml(o, about);
    out_text(o, "</desc>\n<style>\n");
    out_text(o, style_light);
    out_text(o, style_dark);
    out_text(o, "</style>\n");
    out_text(o, hatches);
    svg_rect(o, "bg", 0, 0, width, height);
}

void svg_end(struct out *o) { out_text(o, "</svg>\n"); }

void svg_rect(struct out *o, const char *classes, double x, double y, double width, double height) {
    out_text(o, "<rect class=\"");
    out_text(o, classes);
    out_char(o, '"');
    svg_attribute(o, "x", x);
    svg_attribute(o, "y", y);
    svg_attribute(o, "width", width);
    svg_attribute(o, "height", height);
    out_text(o, "/>\n");
}

void svg_line(struct out *o, const char *classes, double x1, double y1, double x2, double y2) {
    out_text(o, "<path class=\"");
    out_text(o, classes);
    out_text(o, "\" d=\"M");
    out_pixels(o, x1);
    out_char(o, ' ');
    out_pixels(o, y1);
    out_char(o, 'L');
    out_pixels(o, x2);
    out_char(o, ' ');
    out_pixels(o, y2);
    out_text(o, "\"/>\n");
}

void svg_text_begin(struct out *o, const char *classes, double x, double y) {
    out_text(o, "<text");
    if (*classes != 0) {
        out_text(o, " class=\"");
        out_text(o, classes);
        out_char(o, '"');
    }
    svg_attribute(o, "x", x);
    svg_attribute(o, "y", y);
    out_char(o, '>');
}

void svg_text_end(struct out *o) { out_text(o, "</text>\n"); }

void svg_text(struct out *o, const char *classes, double x, double y, const char *text) {
    svg_text_begin(o, classes, x, y);
    out_xml(o, text);
    svg_text_end(o);
}

double svg_width(size_t characters, double size) { return (double)characters * size * 0.58; }

double svg_step(double least) {
    double power = pow(10, floor(log10(least)));
    for (int i = 0; i < 4; i++) {
        static const double factors[] = {1, 2, 5, 10};
        if (factors[i] * power >= least * (1 - 1e-9)) return factors[i] * power;
    }
    return 10 * power;
}
