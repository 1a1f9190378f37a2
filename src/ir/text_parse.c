/* Reads the text form of a plan that text.c prints, and that of version 1, which knew one chunk a stage.
 *
 * Printing then parsing gives the same plan, and printing that the same text. Parsing also takes further
 * blanks, empty lines and comments from # to the end of the line. Errors name line and column, both from
 * 1, columns in bytes. Tested in tests/unit/ir_text_test.c and tests/fuzz/ir_parse_fuzz.c. */
#include <stdio.h>
#include <string.h>

#include "ir/shape.h"

#define VERSION 3u /* newest */

/* The shortest line of a worker: "0.0:" in version 1, "0.0 []:" since. */
static const uint32_t worker_bytes[VERSION + 1] = {0, 4, 7, 7};

struct cursor {
    const char *text;
    size_t size;
    size_t at;
    size_t line; /* from 1 */
    size_t line_start;
    uint32_t version; /* 1..VERSION, once the header is read */
    struct ir_plan *plan;
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

/* The sizes; memory is taken for the workers only if the text is long enough for their lines. */
static pawl_code take_header(struct cursor *c) {
    uint32_t pipelines = 0, stages = 0, chunks = 0, microbatches = 0, total = 0;
    skip_empty_lines(c);
    pawl_code code = take_word(c, "pawl-plan");
    if (code == PAWL_OK) code = take_size(c, "", VERSION, &c->version);
    if (code == PAWL_OK) code = take_size(c, "pipelines=", IR_PIPELINES_MAX, &pipelines);
    size_t stages_at = c->at;
    if (code == PAWL_OK) code = take_size(c, "stages=", IR_STAGES_MAX, &stages);
    chunks = stages;
    if (code == PAWL_OK && c->version > 1) code = take_size(c, "chunks=", IR_CHUNKS_MAX, &chunks);
    if (code == PAWL_OK) code = take_size(c, "microbatches=", IR_MICROBATCHES_MAX, &microbatches);
    if (code == PAWL_OK && c->version > 2)
        code = take_size(c, "total=", pipelines * microbatches - 1, &total);
    if (code == PAWL_OK) code = take_line_end(c);
    if (code != PAWL_OK) return code;
    uint32_t workers = pipelines * stages;
    if (workers > IR_WORKERS_MAX) return fail_at(c, stages_at, "at most 65536 workers");
    if (workers > (c->size - c->at) / worker_bytes[c->version])
        return error_set(c->e, PAWL_FORMAT, 0,
                         "plan: line %zu: %u workers need as many lines, %zu bytes are left", c->line,
                         workers, c->size - c->at);
    if (c->version == 1) return ir_plan_new(pipelines, stages, microbatches, &c->plan, c->e);
    code = ir_plan_new_chunks(pipelines, stages, chunks, microbatches, &c->plan, c->e);
    return code == PAWL_OK && c->version > 2 ? ir_plan_limit(c->plan, total, c->e) : code;
}

_Static_assert(IR_WORKERS_MAX == 65536u, "the limit in the text of take_header");

static const char *ops_wanted(const struct cursor *c) {
    return c->version == 1 ? "an op of F I W B R S" : "an op of F I W B R S C O L";
}

static pawl_code take_op(struct cursor *c, enum ir_op *op) {
    int count = c->version == 1 ? IR_S + 1 : IR_OP_COUNT;
    for (int i = 0; i < count; i++) {
        if (!sees(c, ir_op_name((enum ir_op)i)[0])) continue;
        *op = (enum ir_op)i;
        c->at++;
        return PAWL_OK;
    }
    return fail(c, ops_wanted(c));
}

/* Of a home pipeline that has any. */
static uint32_t microbatches_of(const struct ir_plan *plan, uint32_t home) {
    uint32_t left = plan->total - home * plan->microbatches;
    return left < plan->microbatches ? left : plan->microbatches;
}

static pawl_code take_microbatch(struct cursor *c, struct ir_instruction *in) {
    uint32_t last_home = (c->plan->total - 1) / c->plan->microbatches;
    pawl_code code = take_number(c, "a home pipeline", 0, last_home, &in->home);
    if (code == PAWL_OK) code = take_word(c, ".");
    if (code == PAWL_OK)
        code = take_number(c, "a micro-batch", 0, microbatches_of(c->plan, in->home) - 1, &in->microbatch);
    return code;
}

/* `mark` and a worker, in version 1 its pipeline alone, if the mark is there. */
static pawl_code take_neighbour(struct cursor *c, char mark, uint32_t *out) {
    uint32_t stage;
    *out = IR_NONE;
    if (!sees(c, mark)) return PAWL_OK;
    c->at++;
    pawl_code code = take_number(c, "a pipeline", 0, c->plan->pipelines - 1, out);
    if (code != PAWL_OK || c->version == 1) return code;
    code = take_word(c, ".");
    if (code == PAWL_OK) code = take_number(c, "a stage", 0, c->plan->stages - 1, &stage);
    if (code == PAWL_OK) *out = *out * c->plan->stages + stage;
    return code;
}

static pawl_code take_chunk(struct cursor *c, struct ir_instruction *in) {
    pawl_code code = take_number(c, "a chunk", 0, c->plan->chunks - 1, &in->chunk);
    return code == PAWL_OK && !ir_op_is_collective(in->op) ? take_word(c, ":") : code;
}

static pawl_code take_instruction(struct cursor *c, uint32_t worker) {
    struct ir_plan *plan = c->plan;
    uint32_t pipeline = worker / plan->stages, stage = worker % plan->stages;
    struct ir_instruction in = {.home = IR_NONE, .microbatch = IR_NONE, .from = IR_NONE, .to = IR_NONE};
    size_t start = c->at;
    pawl_code code = take_op(c, &in.op);
    if (code == PAWL_OK && c->version > 1) code = take_chunk(c, &in);
    if (code == PAWL_OK && !ir_op_is_collective(in.op)) code = take_microbatch(c, &in);
    if (code == PAWL_OK) code = take_neighbour(c, '<', &in.from);
    if (code == PAWL_OK) code = take_neighbour(c, '>', &in.to);
    if (code != PAWL_OK) return code;
    if (!ir_op_speaks(in.op) && (in.from != IR_NONE || in.to != IR_NONE))
        return fail_at(c, start, "< and > at F, I and B only");
    if (c->version == 1 && ir_shape_upgrade(plan, stage, &in) != NULL)
        return fail_at(c, start, "< and > where there is a stage before and behind");
    if (plan->workers[worker].count >= IR_LIST_MAX) return fail_at(c, start, "at most 2^29 instructions");
    return ir_plan_append(plan, pipeline, stage, in, c->e);
}

/* Whether a list goes on; blanks before an instruction are needed. */
static pawl_code take_separator(struct cursor *c, bool *more) {
    size_t end = c->at;
    skip_blanks(c);
    *more = !at_end(c) && !sees(c, '\n');
    return *more && c->at == end ? fail(c, "a blank or the end of the line") : PAWL_OK;
}

static pawl_code take_dead(struct cursor *c, uint32_t worker) {
    skip_blanks(c);
    pawl_code code = take_word(c, "dead");
    if (code != PAWL_OK) return code;
    ir_plan_kill(c->plan, worker);
    return take_line_end(c);
}

static pawl_code take_list(struct cursor *c, uint32_t worker) {
    bool more;
    for (;;) {
        pawl_code code = take_separator(c, &more);
        if (code != PAWL_OK || !more) return code;
        if (c->version == 1 && sees(c, 'd') && c->plan->workers[worker].count == 0)
            return take_dead(c, worker);
        code = take_instruction(c, worker);
        if (code != PAWL_OK) return code;
    }
}

/* "[0,2]": ascending. */
static pawl_code take_holds(struct cursor *c, uint32_t worker) {
    uint32_t least = 0, chunk;
    pawl_code code = take_word(c, "[");
    if (code == PAWL_OK && sees(c, ']')) return take_word(c, "]");
    while (code == PAWL_OK) {
        code = take_number(c, "a chunk", least, c->plan->chunks - 1, &chunk);
        if (code == PAWL_OK) code = ir_plan_hold(c->plan, worker, chunk, c->e);
        if (code != PAWL_OK || !sees(c, ',')) break;
        c->at++;
        least = chunk + 1;
    }
    return code == PAWL_OK ? take_word(c, "]") : code;
}

static pawl_code take_worker(struct cursor *c, uint32_t worker) {
    char name[32];
    snprintf(name, sizeof name, c->version == 1 ? "%u.%u:" : "%u.%u", worker / c->plan->stages,
             worker % c->plan->stages);
    skip_empty_lines(c);
    pawl_code code = take_word(c, name);
    if (code != PAWL_OK) return code;
    if (c->version == 1) return take_list(c, worker);
    if (sees(c, ':')) {
        c->at++;
        return take_dead(c, worker);
    }
    skip_blanks(c);
    code = take_holds(c, worker);
    if (code == PAWL_OK) code = take_word(c, ":");
    return code == PAWL_OK ? take_list(c, worker) : code;
}

pawl_code ir_parse(const char *text, size_t size, struct ir_plan **out, struct pawl_error *e) {
    *out = NULL;
    struct cursor c = {.text = text, .size = size, .line = 1, .e = e};
    pawl_code code = take_header(&c);
    for (uint32_t w = 0; code == PAWL_OK && w < ir_worker_count(c.plan); w++) code = take_worker(&c, w);
    if (code == PAWL_OK) skip_empty_lines(&c);
    if (code == PAWL_OK && !at_end(&c)) code = fail(&c, "the end of the text");
    if (code == PAWL_OK)
        *out = c.plan;
    else
        ir_plan_free(c.plan);
    return code;
}
