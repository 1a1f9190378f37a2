/* The text form of a plan, for people and diffs; docs/formats/plan.md gives the grammar.
 *
 *   pawl-plan 1 pipelines=2 stages=2 microbatches=1
 *   0.0: F0.0>0 B0.0<0 R S
 *   0.1: F0.0<0 B0.0>0 R S
 *   1.0: dead
 *   ...
 *
 * Printing then parsing gives the same plan, and printing that the same text. Parsing also takes further
 * blanks, empty lines and comments from # to the end of the line. Errors name line and column, both from
 * 1, columns in bytes. Tested in tests/unit/ir_text_test.c and tests/fuzz/ir_parse_fuzz.c. */
#include "ir/ir.h"

#include <stdio.h>
#include <string.h>

#include "ir/shape.h"

#define VERSION      1u
#define WORKER_BYTES 4u /* the shortest line of a worker: "0.0:" */

static void print_instruction(const struct ir_instruction *in, struct bytes *out) {
    bytes_printf(out, " %s", ir_op_name(in->op));
    if (in->home != IR_NONE || in->microbatch != IR_NONE)
        bytes_printf(out, "%u.%u", in->home, in->microbatch);
    if (in->from != IR_NONE) bytes_printf(out, "<%u", in->from);
    if (in->to != IR_NONE) bytes_printf(out, ">%u", in->to);
}

void ir_print(const struct ir_plan *plan, struct bytes *out) {
    bytes_printf(out, "pawl-plan %u pipelines=%u stages=%u microbatches=%u\n", VERSION, plan->pipelines,
                 plan->stages, plan->microbatches);
    uint64_t worker_count = ir_worker_count(plan);
    for (uint64_t w = 0; w < worker_count; w++) {
        const struct ir_worker *worker = &plan->workers[w];
        bytes_printf(out, "%u.%u:", (uint32_t)(w / plan->stages), (uint32_t)(w % plan->stages));
        if (!worker->alive) bytes_printf(out, " dead");
        for (uint32_t i = 0; i < worker->count; i++) print_instruction(&worker->instructions[i], out);
        bytes_printf(out, "\n");
    }
}

struct cursor {
    const char *text;
    size_t size;
    size_t at;
    size_t line; /* from 1 */
    size_t line_start;
    struct pawl_error *e;
};

static bool at_end(const struct cursor *c) { return c->at >= c->size; }
static bool sees(const struct cursor *c, char ch) { return !at_end(c) && c->text[c->at] == ch; }
static bool sees_digit(const struct cursor *c) {
    return !at_end(c) && c->text[c->at] >= '0' && c->text[c->at] <= '9';
}

static pawl_code fail_at(const struct cursor *c, size_t at, const char *wanted) {
    char had[16] = "end of text";
    unsigned char ch = at < c->size ? (unsigned char)c->text[at] : 0;
    if (at < c->size && ch == '\n')
        snprintf(had, sizeof had, "end of line");
    else if (at < c->size && (ch <= ' ' || ch >= 127))
        snprintf(had, sizeof had, "byte 0x%02x", ch);
    else if (at < c->size)
        snprintf(had, sizeof had, "'%c'", ch);
    return error_set(c->e, PAWL_FORMAT, 0, "plan: line %zu column %zu: wanted %s, had %s", c->line,
                     at - c->line_start + 1, wanted, had);
}

static pawl_code fail(const struct cursor *c, const char *wanted) { return fail_at(c, c->at, wanted); }

/* Blanks (with the \r of a CRLF) and a comment, up to the end of the line. */
static void skip_blanks(struct cursor *c) {
    while (sees(c, ' ') || sees(c, '\t') || sees(c, '\r')) c->at++;
    if (!sees(c, '#')) return;
    while (!at_end(c) && !sees(c, '\n')) c->at++;
}

/* To the first character of the next line that has any. */
static void skip_empty_lines(struct cursor *c) {
    skip_blanks(c);
    while (sees(c, '\n')) {
        c->at++;
        c->line++;
        c->line_start = c->at;
        skip_blanks(c);
    }
}

static pawl_code take_word(struct cursor *c, const char *word) {
    size_t size = strlen(word);
    if (size > c->size - c->at || memcmp(c->text + c->at, word, size) != 0) {
        char wanted[48];
        snprintf(wanted, sizeof wanted, "`%s`", word);
        return fail(c, wanted);
    }
    c->at += size;
    return PAWL_OK;
}

/* A decimal number in [low, high]. */
static pawl_code take_number(struct cursor *c, const char *what, uint32_t low, uint32_t high, uint32_t *out) {
    size_t start = c->at;
    uint64_t value = 0;
    while (sees_digit(c) && value <= high) value = value * 10 + (uint64_t)(c->text[c->at++] - '0');
    if (c->at > start && !sees_digit(c) && value >= low && value <= high) {
        *out = (uint32_t)value;
        return PAWL_OK;
    }
    char wanted[80];
    snprintf(wanted, sizeof wanted, "%s in %u..%u", what, low, high);
    return fail_at(c, start, wanted);
}

static pawl_code take_size(struct cursor *c, const char *word, uint32_t limit, uint32_t *out) {
    pawl_code code = PAWL_OK;
    if (!sees(c, ' ') && !sees(c, '\t')) return fail(c, "a blank");
    skip_blanks(c);
    code = take_word(c, word);
    if (code == PAWL_OK) code = take_number(c, "a number", 1, limit, out);
    return code;
}

static pawl_code take_line_end(struct cursor *c) {
    skip_blanks(c);
    return at_end(c) || sees(c, '\n') ? PAWL_OK : fail(c, "the end of the line");
}

static pawl_code take_header(struct cursor *c, struct ir_plan **plan) {
    uint32_t version = 0, pipelines = 0, stages = 0, microbatches = 0;
    skip_empty_lines(c);
    pawl_code code = take_word(c, "pawl-plan");
    if (code == PAWL_OK) code = take_size(c, "", VERSION, &version);
    if (code == PAWL_OK) code = take_size(c, "pipelines=", IR_PIPELINES_MAX, &pipelines);
    if (code == PAWL_OK) code = take_size(c, "stages=", IR_STAGES_MAX, &stages);
    if (code == PAWL_OK) code = take_size(c, "microbatches=", IR_MICROBATCHES_MAX, &microbatches);
    if (code == PAWL_OK) code = take_line_end(c);
    if (code != PAWL_OK) return code;
    uint64_t workers = (uint64_t)pipelines * stages;
    if (workers > (c->size - c->at) / WORKER_BYTES)
        return error_set(c->e, PAWL_FORMAT, 0,
                         "plan: line %zu: %llu workers need as many lines, %zu bytes are left", c->line,
                         (unsigned long long)workers, c->size - c->at);
    return ir_plan_new(pipelines, stages, microbatches, plan, c->e);
}

static pawl_code take_op(struct cursor *c, enum ir_op *op) {
    for (int i = 0; i < IR_OP_COUNT; i++) {
        if (!sees(c, ir_op_name((enum ir_op)i)[0])) continue;
        *op = (enum ir_op)i;
        c->at++;
        return PAWL_OK;
    }
    return fail(c, "an op of F I W B R S");
}

static pawl_code take_microbatch(struct cursor *c, const struct ir_plan *plan, struct ir_instruction *in) {
    pawl_code code = take_number(c, "a home pipeline", 0, plan->pipelines - 1, &in->home);
    if (code == PAWL_OK) code = take_word(c, ".");
    if (code == PAWL_OK) code = take_number(c, "a micro-batch", 0, plan->microbatches - 1, &in->microbatch);
    return code;
}

/* `mark` and a pipeline, if the mark is there. */
static pawl_code take_neighbour(struct cursor *c, char mark, uint32_t pipelines, uint32_t *out) {
    *out = IR_NONE;
    if (!sees(c, mark)) return PAWL_OK;
    c->at++;
    return take_number(c, "a pipeline", 0, pipelines - 1, out);
}

static pawl_code take_instruction(struct cursor *c, struct ir_plan *plan, uint64_t worker) {
    struct ir_instruction in = {.home = IR_NONE, .microbatch = IR_NONE, .from = IR_NONE, .to = IR_NONE};
    size_t start = c->at;
    pawl_code code = take_op(c, &in.op);
    bool has_microbatch = in.op != IR_R && in.op != IR_S;
    if (code == PAWL_OK && has_microbatch) code = take_microbatch(c, plan, &in);
    if (code == PAWL_OK) code = take_neighbour(c, '<', plan->pipelines, &in.from);
    if (code == PAWL_OK) code = take_neighbour(c, '>', plan->pipelines, &in.to);
    if (code != PAWL_OK) return code;
    if (ir_shape_fault(plan, &in) != NULL) return fail_at(c, start, "W, R and S without < and >");
    return ir_plan_append(plan, (uint32_t)(worker / plan->stages), (uint32_t)(worker % plan->stages), in,
                          c->e);
}

static pawl_code take_list(struct cursor *c, struct ir_plan *plan, uint64_t worker) {
    for (;;) {
        size_t end = c->at;
        skip_blanks(c);
        if (at_end(c) || sees(c, '\n')) return PAWL_OK;
        if (c->at == end) return fail(c, "a blank or the end of the line");
        if (sees(c, 'd')) {
            if (plan->workers[worker].count > 0) return fail(c, "an op of F I W B R S");
            pawl_code code = take_word(c, "dead");
            plan->workers[worker].alive = false;
            return code == PAWL_OK ? take_line_end(c) : code;
        }
        pawl_code code = take_instruction(c, plan, worker);
        if (code != PAWL_OK) return code;
    }
}

static pawl_code take_worker(struct cursor *c, struct ir_plan *plan, uint64_t worker) {
    char name[32];
    snprintf(name, sizeof name, "%u.%u:", (uint32_t)(worker / plan->stages),
             (uint32_t)(worker % plan->stages));
    skip_empty_lines(c);
    pawl_code code = take_word(c, name);
    return code == PAWL_OK ? take_list(c, plan, worker) : code;
}

pawl_code ir_parse(const char *text, size_t size, struct ir_plan **out, struct pawl_error *e) {
    *out = NULL;
    struct ir_plan *plan = NULL;
    struct cursor c = {.text = text, .size = size, .line = 1, .e = e};
    pawl_code code = take_header(&c, &plan);
    for (uint64_t w = 0; code == PAWL_OK && w < ir_worker_count(plan); w++) code = take_worker(&c, plan, w);
    if (code == PAWL_OK) skip_empty_lines(&c);
    if (code == PAWL_OK && !at_end(&c)) code = fail(&c, "the end of the text");
    if (code == PAWL_OK)
        *out = plan;
    else
        ir_plan_free(plan);
    return code;
}
