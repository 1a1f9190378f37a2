/* Oobleck (SOSP'23): pipelines of different depth from templates.
 *
 * There is a template for every number of nodes from n0, the least whose memory holds the model, upwards. A
 * pipeline that loses nodes goes on with a smaller template; below n0 it borrows from the biggest pipeline,
 * and if none can spare a node two pipelines merge. The batch is distributed so that the slowest pipeline is
 * done soonest. Every change stops the job: rendezvous of everybody, then layers that a node now lacks are
 * copied from whoever has them. Layers that nobody has are loaded, with everything, from the newest
 * checkpoint (its authors' engine ends there). Its engine knows no joining node: to its favour all that came
 * are put to use at once, in as many pipelines as are fastest, above its fault threshold and at most as many
 * as at the start, if that is faster than before. Facts: Oobleck's repository. Tested in
 * tests/unit/fleet_policy_test.c. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "fleet/policy.h"

struct oobleck {
    const struct fleet_job *job;
    uint32_t machines, least; /* n0; 0: no depth fits */
    uint32_t pipelines;       /* that run; 0: none */
    uint32_t *size;           /* [pipelines] nodes */
    uint32_t *order;          /* machines, pipeline by pipeline, then the spare ones */
    uint32_t alive_count;
    uint32_t *from, *to;   /* [machines] layers that it holds */
    uint32_t *depth_count; /* [layer_count + 1] scratch */
    uint32_t *cut;         /* [layer_count + 1] scratch */
    uint64_t iteration_ns;
};

static void oobleck_close(void *state) {
    struct oobleck *o = state;
    if (o == NULL) return;
    free(o->size);
    free(o->order);
    free(o->from);
    free(o->to);
    free(o->depth_count);
    free(o->cut);
    free(o);
}

static double constant(const struct oobleck *o, const char *name) {
    return fleet_job_constant(o->job, "oobleck", name);
}

static uint32_t depth_of(const struct oobleck *o, uint32_t nodes) {
    return nodes < o->job->layer_count ? nodes : o->job->layer_count;
}

/* ---- distributing the batch ---- */

/* Micro-batches that all pipelines finish within `ns`, before their tails. */
static uint64_t done_within(const struct oobleck *o, uint64_t ns) {
    uint64_t sum = 0;
    for (uint32_t depth = 1; depth <= o->job->layer_count && sum < o->job->batch; depth++) {
        const struct fleet_pipe *pipe = &o->job->pipe[depth];
        if (o->depth_count[depth] == 0 || ns < pipe->fill) continue;
        uint64_t each = pipe->slowest == 0 ? o->job->batch : (ns - pipe->fill) / pipe->slowest + 1;
        sum += (each < o->job->batch ? each : o->job->batch) * o->depth_count[depth];
    }
    return sum;
}

/* The least time in which the pipelines counted in depth_count do the batch. */
static uint64_t batch_ns(const struct oobleck *o) {
    uint64_t low = 0, high = 0, tail = 0;
    for (uint32_t depth = 1; depth <= o->job->layer_count; depth++) {
        const struct fleet_pipe *pipe = &o->job->pipe[depth];
        if (o->depth_count[depth] == 0) continue;
        uint64_t alone = pipe->fill + (o->job->batch - 1) * pipe->slowest;
        if (alone > high) high = alone;
        if (pipe->tail > tail) tail = pipe->tail;
    }
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (done_within(o, middle) >= o->job->batch)
            high = middle;
        else
            low = middle + 1;
    }
    return low + tail;
}

static uint64_t current_ns(struct oobleck *o) {
    memset(o->depth_count, 0, ((size_t)o->job->layer_count + 1) * sizeof *o->depth_count);
    for (uint32_t p = 0; p < o->pipelines; p++) o->depth_count[depth_of(o, o->size[p])]++;
    return o->pipelines == 0 ? 0 : batch_ns(o);
}

/* `count` pipelines that differ by one node at most. */
static uint64_t even_ns(struct oobleck *o, uint32_t nodes, uint32_t count) {
    memset(o->depth_count, 0, ((size_t)o->job->layer_count + 1) * sizeof *o->depth_count);
    o->depth_count[depth_of(o, nodes / count)] += count - nodes % count;
    o->depth_count[depth_of(o, nodes / count + 1)] += nodes % count;
    return batch_ns(o);
}

/* ---- who is where ---- */

static uint32_t used_count(const struct oobleck *o) {
    uint32_t sum = 0;
    for (uint32_t p = 0; p < o->pipelines; p++) sum += o->size[p];
    return sum;
}

static uint32_t first_of(const struct oobleck *o, uint32_t pipeline) {
    uint32_t first = 0;
    for (uint32_t p = 0; p < pipeline; p++) first += o->size[p];
    return first;
}

/* The node at `from` comes to stand at `to`. */
static void shift(struct oobleck *o, uint32_t from, uint32_t to) {
    uint32_t node = o->order[from];
    if (from < to)
        memmove(&o->order[from], &o->order[from + 1], (to - from) * sizeof *o->order);
    else
        memmove(&o->order[to + 1], &o->order[to], (from - to) * sizeof *o->order);
    o->order[to] = node;
}

/* True: it was in a pipeline. */
static bool drop_node(struct oobleck *o, uint32_t machine) {
    uint32_t at = 0, end = 0, p = 0;
    while (at < o->alive_count && o->order[at] != machine) at++;
    for (; p < o->pipelines; p++) {
        end += o->size[p];
        if (at < end) break;
    }
    if (p < o->pipelines) o->size[p]--;
    shift(o, at, o->alive_count - 1);
    o->alive_count--;
    o->from[machine] = o->to[machine] = 0;
    return p < o->pipelines;
}

static void remove_pipeline(struct oobleck *o, uint32_t p) {
    memmove(&o->size[p], &o->size[p + 1], (o->pipelines - p - 1) * sizeof *o->size);
    o->pipelines--;
}

static uint32_t biggest_but(const struct oobleck *o, uint32_t but) {
    uint32_t best = FLEET_NONE;
    for (uint32_t p = 0; p < o->pipelines; p++)
        if (p != but && (best == FLEET_NONE || o->size[p] > o->size[best])) best = p;
    return best;
}

static uint32_t smallest_but(const struct oobleck *o, uint32_t but) {
    uint32_t best = FLEET_NONE;
    for (uint32_t p = 0; p < o->pipelines; p++)
        if (p != but && (best == FLEET_NONE || o->size[p] < o->size[best])) best = p;
    return best;
}

/* The last node of pipeline `giver` becomes the last of `taker`. */
static void borrow(struct oobleck *o, uint32_t giver, uint32_t taker) {
    uint32_t from = first_of(o, giver) + o->size[giver] - 1, end = first_of(o, taker) + o->size[taker];
    shift(o, from, giver < taker ? end - 1 : end);
    o->size[giver]--;
    o->size[taker]++;
}

/* All nodes of `other` join those of `p`. */
static void merge(struct oobleck *o, uint32_t p, uint32_t other) {
    while (o->size[other] > 0) borrow(o, other, p);
    remove_pipeline(o, other);
}

/* Every pipeline has n0 nodes again, or there is none. */
static void mend(struct oobleck *o) {
    for (uint32_t p = 0; p < o->pipelines;) {
        uint32_t spare = used_count(o);
        uint32_t big = biggest_but(o, p), small = smallest_but(o, p);
        if (o->size[p] >= o->least) {
            p++;
        } else if (o->size[p] == 0) {
            remove_pipeline(o, p);
        } else if (spare < o->alive_count) {
            shift(o, spare, first_of(o, p) + o->size[p]);
            o->size[p]++;
        } else if (big != FLEET_NONE && o->size[big] > o->least) {
            borrow(o, big, p);
        } else if (small != FLEET_NONE) {
            merge(o, p, small);
            p = 0;
        } else {
            o->pipelines = 0;
        }
    }
}

/* The fastest number of pipelines for all nodes, above the fault threshold and no more than at the start; 0:
 * none is faster than now, and now there are enough. `ns`: of it, or of now. */
static uint32_t fastest(struct oobleck *o, uint64_t *ns) {
    uint32_t most = o->alive_count / o->least, least = (uint32_t)constant(o, "fault_threshold") + 1, best = 0;
    if (most > o->job->pipelines) most = o->job->pipelines;
    if (least > most) least = most;
    *ns = o->pipelines < least ? 0 : current_ns(o);
    for (uint32_t count = most; count >= least && count > 0; count--) {
        uint64_t even = even_ns(o, o->alive_count, count);
        if (*ns == 0 || even < *ns) *ns = even, best = count;
    }
    return best;
}

/* All nodes in use, if that is faster than now or if now there are too few. */
static bool reinstantiate(struct oobleck *o) {
    uint64_t ns;
    uint32_t best = fastest(o, &ns);
    if (best == 0) return false;
    o->pipelines = best;
    for (uint32_t p = 0; p < best; p++) o->size[p] = o->alive_count / best + (p < o->alive_count % best);
    return true;
}

/* ---- layers ---- */

static bool all_layers_owned(const struct oobleck *o) {
    for (uint32_t layer = 0; layer < o->job->layer_count; layer++) {
        bool owned = false;
        for (uint32_t i = 0; i < o->alive_count && !owned; i++)
            owned = o->from[o->order[i]] <= layer && layer < o->to[o->order[i]];
        if (!owned) return false;
    }
    return true;
}

/* Gives everybody its layers; returns the most bytes that one node lacked. */
static uint64_t hand_out(struct oobleck *o) {
    uint64_t most = 0;
    for (uint32_t p = 0, at = 0; p < o->pipelines; at += o->size[p++]) {
        uint32_t depth = depth_of(o, o->size[p]);
        fleet_job_cut(o->job, depth, o->cut);
        for (uint32_t s = 0; s < depth; s++) {
            uint32_t node = o->order[at + s];
            uint64_t bytes = 0;
            for (uint32_t l = o->cut[s]; l < o->cut[s + 1]; l++)
                if (l < o->from[node] || l >= o->to[node]) bytes += o->job->layer[l].state;
            o->from[node] = o->cut[s];
            o->to[node] = o->cut[s + 1];
            if (bytes > most) most = bytes;
        }
    }
    return most;
}

/* ---- the policy ---- */

static void oobleck_rate(struct oobleck *o, struct fleet_answer *out) {
    o->iteration_ns = current_ns(o);
    out->iteration_ns = o->iteration_ns;
    if (o->least == 0) out->note = "cannot run: the model does not fit into any pipeline";
    if (o->least > o->machines) out->note = "cannot run: fewer machines than the model's memory needs";
}

static pawl_code oobleck_alloc(struct oobleck *o, struct pawl_error *e) {
    size_t layers = (size_t)o->job->layer_count + 1;
    o->size = calloc(o->machines, sizeof *o->size);
    o->order = calloc(o->machines, sizeof *o->order);
    o->from = calloc(o->machines, sizeof *o->from);
    o->to = calloc(o->machines, sizeof *o->to);
    o->depth_count = calloc(layers + 1, sizeof *o->depth_count);
    o->cut = calloc(layers + 1, sizeof *o->cut);
    if (o->size == NULL || o->order == NULL || o->from == NULL || o->to == NULL || o->depth_count == NULL ||
        o->cut == NULL)
        return error_set(e, PAWL_MEMORY, 0, "no memory for a policy");
    return PAWL_OK;
}

static pawl_code oobleck_start(const struct fleet_job *job, const bool *alive, void **state,
                               struct fleet_answer *out, struct pawl_error *e) {
    struct oobleck *o = calloc(1, sizeof *o);
    *state = o;
    *out = (struct fleet_answer){0};
    if (o == NULL) return error_set(e, PAWL_MEMORY, 0, "no memory for a policy");
    o->job = job;
    o->machines = job->pipelines * job->stages;
    for (uint32_t depth = job->layer_count; depth >= 1; depth--)
        if (job->pipe[depth].fits) o->least = depth;
    pawl_code code = oobleck_alloc(o, e);
    if (code != PAWL_OK) return code;
    if (o->least == 0) return oobleck_rate(o, out), PAWL_OK;
    /* The layout of the others, which those who are missing have left as they would later. */
    o->alive_count = o->machines;
    o->pipelines = job->pipelines;
    for (uint32_t m = 0; m < o->machines; m++) o->order[m] = m;
    for (uint32_t p = 0; p < o->pipelines; p++) o->size[p] = job->stages;
    for (uint32_t m = 0; m < o->machines; m++)
        if (!alive[m]) (void)drop_node(o, m);
    mend(o);
    if (o->pipelines == 0) (void)reinstantiate(o);
    (void)hand_out(o);
    oobleck_rate(o, out);
    return PAWL_OK;
}

static pawl_code oobleck_change(void *state, const struct fleet_change *change, struct fleet_answer *out,
                                struct pawl_error *e) {
    struct oobleck *o = state;
    bool ran = o->pipelines > 0, hit = false, grown = false;
    (void)e;
    *out = (struct fleet_answer){0};
    if (o->least == 0) return oobleck_rate(o, out), PAWL_OK;
    for (uint32_t i = 0; i < change->lost_count; i++) hit = drop_node(o, change->lost[i]) || hit;
    bool gone = ran && hit && !all_layers_owned(o);
    if (hit) mend(o);
    for (uint32_t i = 0; i < change->joined_count; i++) o->order[o->alive_count++] = change->joined[i];
    if (change->joined_count > 0 || o->pipelines == 0) grown = reinstantiate(o);
    if (hit || grown) {
        uint64_t bytes = hand_out(o);
        out->rollback = gone || (ran && o->pipelines == 0);
        if (hit) out->stop_s = constant(o, "detect_s");
        if (out->rollback || !ran)
            out->stop_s += constant(o, "restart_s") + fleet_job_saving(o->job, "oobleck", 0).load_s;
        else
            out->stop_s += constant(o, "rendezvous_s") + (double)bytes / o->job->link_bps;
        if (hit && !out->rollback) out->lost_iterations = constant(o, "lost_iterations");
    }
    oobleck_rate(o, out);
    return PAWL_OK;
}

/* It starts with the layout of the others, but is not bound to it: after the first machine that comes back it
 * may go faster than at the start. */
static uint64_t oobleck_best_ns(void *state) {
    struct oobleck *o = state;
    uint64_t ns = 0;
    if (o->least > 0) (void)fastest(o, &ns);
    return ns;
}

const struct fleet_policy fleet_oobleck = {"oobleck", oobleck_start, oobleck_change, oobleck_close,
                                           oobleck_best_ns};
