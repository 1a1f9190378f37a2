/* Arbitrary bytes as a text plan. What parses must print to a text that parses to the same plan, and the
 * checker must stand it. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "ir/ir.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct ir_plan *plan = NULL, *back = NULL;
    struct pawl_error e;
    struct bytes text = {0}, again = {0};
    if (ir_parse((const char *)data, size, &plan, &e) != PAWL_OK) return 0;
    (void)ir_check(plan, NULL, NULL, &e);
    ir_print(plan, &text);
    if (ir_parse((const char *)text.data, text.size, &back, &e) != PAWL_OK) abort();
    ir_print(back, &again);
    if (again.size != text.size || memcmp(again.data, text.data, text.size) != 0) abort();
    ir_plan_free(plan);
    ir_plan_free(back);
    bytes_close(&text);
    bytes_close(&again);
    return 0;
}
