/* Frames over UCX: one worker, one endpoint per peer, active messages that UCX must send eagerly.
 *
 * Every frame is memory of ours and fits one segment of the tcp transport, so UCX never holds memory of
 * the caller, never starts a rendezvous that a dead or stopped peer could leave half done, and hands a
 * frame to the receiver in place. Endpoints are created with UCP_ERR_HANDLING_MODE_PEER; when UCX reports
 * one dead, the peer is lost and the endpoint is closed by force, without waiting.
 * What is left: UCX 1.13 ends its own process (an assertion, "got REP message") when a peer dies after asking
 * for a connection and before the one from this side stands, some 0.1 ms of a connection's life as both
 * sides' progress threads answer at once; where owners alone made progress it was as long as they computed.
 * UCX's callbacks only note what happened; closing and sending take place outside of them.
 * Tested in tests/unit/net_ucx_test.c and with the common cases. */
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include <ucp/api/ucp.h>
#include <ucs/config/global_opts.h>
#include <ucs/debug/debug.h>

#include "base/clock.h"
#include "net/core.h"

#define AM_FRAME 0u /* our only active message */

/* One segment of UCX's tcp transport is 64 KiB with its headers; a frame that fits it is not reassembled. */
#define UCX_FRAME_BYTES (60u * 1024u)

/* Calls of ucp_worker_progress in one round, so that arriving data does not keep the caller. */
#define PROGRESS_CALLS_MAX 16u

/* How long net_close lets endpoints close before it destroys the worker under them. */
#define CLOSE_WAIT_NS 1000000000

struct ucx_link {
    struct ucx_link *next;
    struct ucx *ucx;
    ucp_ep_h ep;
    struct net_peer *peer; /* null once the core has closed it */
    bool failed;           /* reported by UCX, not yet told to the core */
    void *close_request;   /* UCX's, while the close goes on */
};

struct ucx {
    struct net *net;
    ucp_context_h context;
    ucp_worker_h worker;
    int fd;
    struct ucx_link *links;   /* open */
    struct ucx_link *closing; /* closed by the core, not yet by UCX */
    bool any_failed;
    struct net_frame in_flight; /* ring of frames that UCX holds */
};

/* ---- set-up ---- */

/* Does this handler lie in the same library as UCX's own code? */
static bool is_handler_of_ucx(const struct sigaction *action) {
    Dl_info handler, ucx;
    return dladdr((void *)(uintptr_t)action->sa_sigaction, &handler) != 0 &&
           dladdr((void *)(uintptr_t)ucs_debug_disable_signal, &ucx) != 0 &&
           handler.dli_fbase == ucx.dli_fbase;
}

/* UCX puts handlers on these signals when it is loaded, long before we are asked; unless the user wants
 * them, the program shall die of SIGSEGV the usual way. And a library does not print: that a peer died
 * is an event here, not a line of UCX's log. */
static void leave_alone(void) {
    static const int signals[] = {SIGILL, SIGSEGV, SIGBUS, SIGFPE};
    if (getenv("UCX_LOG_LEVEL") == NULL) (void)ucs_global_opts_set_value_modifiable("LOG_LEVEL", "fatal");
    if (getenv("UCX_ERROR_SIGNALS") != NULL || getenv("UCX_HANDLE_ERRORS") != NULL) return;
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        struct sigaction action;
        if (sigaction(signals[i], NULL, &action) == 0 && is_handler_of_ucx(&action))
            ucs_debug_disable_signal(signals[i]);
    }
}

static pawl_code ucx_error(struct pawl_error *e, ucs_status_t status, const char *what) {
    return error_set(e, status == UCS_ERR_NO_MEMORY ? PAWL_MEMORY : PAWL_IO, 0, "UCX: %s: %s", what,
                     ucs_status_string(status));
}

/* Is `name` one of the comma-separated `transports`? */
static bool lists(const char *transports, const char *name) {
    size_t length = strlen(name);
    for (const char *at = transports; *at != 0; at += strcspn(at, ","), at += *at == ',')
        if (strcspn(at, ",") == length && memcmp(at, name, length) == 0) return true;
    return false;
}

/* Over shared memory UCX notices a dead peer by keepalive alone, and a peer that is stopped or dies at the
 * wrong moment was seen to leave its partner waiting for ever (1.13 and 1.18). A job must not be stuck, so it
 * is not offered. */
pawl_code net_check_transports(const char *transports, struct pawl_error *e) {
    static const char *const shared[] = {"shm", "sm", "mm", "all", "posix", "sysv", "xpmem", "cma", "knem"};
    for (size_t i = 0; i < sizeof shared / sizeof shared[0]; i++)
        if (lists(transports, shared[i]))
            return error_set(
                e, PAWL_ARGUMENT, 0,
                "transport %s is shared memory, over which the death of a peer can go unnoticed: "
                "use tcp,self or a network's own",
                shared[i]);
    return PAWL_OK;
}

static pawl_code open_context(struct ucx *ucx, const char *transports, struct pawl_error *e) {
    const char *user = getenv("UCX_TLS");
    if (transports == NULL) transports = user != NULL ? user : "tcp,self";
    pawl_code code = net_check_transports(transports, e);
    if (code != PAWL_OK) return code;
    ucp_config_t *config = NULL;
    ucs_status_t status = ucp_config_read(NULL, NULL, &config);
    if (status != UCS_OK) return ucx_error(e, status, "read configuration");
    status = ucp_config_modify(config, "TLS", transports);
    if (status != UCS_OK) code = ucx_error(e, status, transports);
    if (code == PAWL_OK) {
        ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                               .features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP};
        status = ucp_init(&params, config, &ucx->context);
        if (status != UCS_OK) code = ucx_error(e, status, "initialise");
    }
    ucp_config_release(config);
    return code;
}

static ucs_status_t on_frame(void *arg, const void *header, size_t header_length, void *data, size_t length,
                             const ucp_am_recv_param_t *param) {
    struct ucx *ucx = arg;
    (void)header;
    /* A rendezvous would come from a foreign sender; it is refused by not taking it. */
    if (header_length != 0 || (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV)) {
        ucx->net->counters.frames_refused++;
        return UCS_OK;
    }
    net_frame_arrived(ucx->net, data, length);
    return UCS_OK;
}

static pawl_code open_worker(struct ucx *ucx, struct pawl_error *e) {
    ucp_worker_params_t params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                  .thread_mode = UCS_THREAD_MODE_SERIALIZED}; /* by the net's lock */
    ucs_status_t status = ucp_worker_create(ucx->context, &params, &ucx->worker);
    if (status != UCS_OK) return ucx_error(e, status, "create worker");
    status = ucp_worker_get_efd(ucx->worker, &ucx->fd);
    if (status != UCS_OK) return ucx_error(e, status, "wake-up descriptor");
    ucp_am_handler_param_t handler = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID |
                                                    UCP_AM_HANDLER_PARAM_FIELD_CB |
                                                    UCP_AM_HANDLER_PARAM_FIELD_ARG,
                                      .id = AM_FRAME,
                                      .cb = on_frame,
                                      .arg = ucx};
    status = ucp_worker_set_am_recv_handler(ucx->worker, &handler);
    return status == UCS_OK ? PAWL_OK : ucx_error(e, status, "set message handler");
}

/* ---- links ---- */

static void on_failure(void *arg, ucp_ep_h ep, ucs_status_t status) {
    struct ucx_link *link = arg;
    (void)ep;
    (void)status;
    link->failed = true;
    link->ucx->any_failed = true;
}

static pawl_code ucx_link_open(struct net *net, struct net_peer *peer, const void *address, size_t size,
                               struct pawl_error *e) {
    struct ucx *ucx = net->transport_state;
    (void)size; /* UCX's addresses tell their own length; the blob's checksum covers them */
    struct ucx_link *link = calloc(1, sizeof *link);
    if (link == NULL) return error_set(e, PAWL_MEMORY, 0, "UCX link");
    *link = (struct ucx_link){.ucx = ucx, .peer = peer};
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                                            UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                                            UCP_EP_PARAM_FIELD_ERR_HANDLER,
                              .address = address,
                              .err_mode = UCP_ERR_HANDLING_MODE_PEER,
                              .err_handler = {.cb = on_failure, .arg = link}};
    ucs_status_t status = ucp_ep_create(ucx->worker, &params, &link->ep);
    if (status != UCS_OK) {
        free(link);
        return ucx_error(e, status, "connect");
    }
    link->next = ucx->links;
    ucx->links = link;
    peer->link = link;
    return PAWL_OK;
}

/* Only noted: this may be called from within a callback of UCX. progress closes. */
static void ucx_link_close(struct net *net, void *link_of) {
    struct ucx *ucx = net->transport_state;
    struct ucx_link *link = link_of;
    link->peer = NULL;
    struct ucx_link **at = &ucx->links;
    while (*at != link) at = &(*at)->next;
    *at = link->next;
    link->next = ucx->closing;
    ucx->closing = link;
}

/* True when UCX has let go of the endpoint (or refuses to say more about it). */
static bool close_done(struct ucx_link *link) {
    if (link->ep != NULL) {
        ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                     .flags = UCP_EP_CLOSE_FLAG_FORCE};
        void *request = ucp_ep_close_nbx(link->ep, &param);
        link->ep = NULL;
        link->close_request = UCS_PTR_IS_PTR(request) ? request : NULL;
    }
    if (link->close_request == NULL) return true;
    if (ucp_request_check_status(link->close_request) == UCS_INPROGRESS) return false;
    ucp_request_free(link->close_request);
    return true;
}

static bool advance_closing(struct ucx *ucx) {
    bool moved = false;
    for (struct ucx_link **at = &ucx->closing; *at != NULL;) {
        struct ucx_link *link = *at;
        if (!close_done(link)) {
            at = &link->next;
            continue;
        }
        *at = link->next;
        free(link);
        moved = true;
    }
    return moved;
}

static bool report_failed(struct ucx *ucx) {
    if (!ucx->any_failed) return false;
    ucx->any_failed = false;
    for (struct ucx_link *link = ucx->links, *next; link != NULL; link = next) {
        next = link->next;
        if (link->failed) net_peer_lost(ucx->net, link->peer);
    }
    return true;
}

/* ---- frames ---- */

static void end_frame(struct ucx *ucx, struct net_frame *frame, ucs_status_t status) {
    frame->prev->next = frame->next;
    frame->next->prev = frame->prev;
    net_frame_sent(ucx->net, frame, status == UCS_OK ? PAWL_OK : PAWL_PEER_LOST);
}

static void on_sent(void *request, ucs_status_t status, void *frame_of) {
    struct net_frame *frame = frame_of;
    ucp_request_free(request);
    end_frame(frame->owner, frame, status);
}

static void ucx_frame_send(struct net *net, void *link_of, struct net_frame *frame) {
    struct ucx *ucx = net->transport_state;
    const struct ucx_link *link = link_of;
    frame->owner = ucx;
    frame->prev = &ucx->in_flight;
    frame->next = ucx->in_flight.next;
    frame->next->prev = frame;
    ucx->in_flight.next = frame;
    ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                                                 UCP_OP_ATTR_FIELD_FLAGS,
                                 .flags = UCP_AM_SEND_FLAG_EAGER,
                                 .cb.send = on_sent,
                                 .user_data = frame};
    void *request = ucp_am_send_nbx(link->ep, AM_FRAME, NULL, 0, frame->bytes, frame->size, &param);
    if (!UCS_PTR_IS_PTR(request)) end_frame(ucx, frame, UCS_PTR_STATUS(request)); /* at once, or failed */
}

static bool ucx_progress(struct net *net) {
    struct ucx *ucx = net->transport_state;
    bool moved = false;
    for (unsigned i = 0; i < PROGRESS_CALLS_MAX && ucp_worker_progress(ucx->worker) != 0; i++) moved = true;
    moved |= report_failed(ucx);
    moved |= advance_closing(ucx);
    return moved;
}

static int ucx_fd(const struct net *net) { return ((const struct ucx *)net->transport_state)->fd; }

static bool ucx_arm(struct net *net) {
    struct ucx *ucx = net->transport_state;
    if (ucx->any_failed || ucx->closing != NULL) return false;
    return ucp_worker_arm(ucx->worker) == UCS_OK;
}

static void ucx_close(struct net *net) {
    struct ucx *ucx = net->transport_state;
    int64_t deadline = clock_now_ns() + CLOSE_WAIT_NS;
    do ucp_worker_progress(ucx->worker);
    while ((advance_closing(ucx), ucx->closing != NULL) && clock_now_ns() < deadline);
    ucp_worker_destroy(ucx->worker);
    ucp_cleanup(ucx->context);
    while (ucx->in_flight.next != &ucx->in_flight) end_frame(ucx, ucx->in_flight.next, UCS_ERR_CANCELED);
    while (ucx->closing != NULL) {
        struct ucx_link *link = ucx->closing;
        ucx->closing = link->next;
        free(link);
    }
    free(ucx);
}

static const struct transport ucx_transport = {
    .link_open = ucx_link_open,
    .link_close = ucx_link_close,
    .frame_send = ucx_frame_send,
    .progress = ucx_progress,
    .fd = ucx_fd,
    .arm = ucx_arm,
    .close = ucx_close,
};

static pawl_code make_net(struct ucx *ucx, struct pawl_error *e) {
    uint64_t endpoint = 0;
    if (getrandom(&endpoint, sizeof endpoint, 0) != (ssize_t)sizeof endpoint)
        return error_set(e, PAWL_IO, errno, "name the endpoint");
    ucp_address_t *address = NULL;
    size_t size = 0;
    ucs_status_t status = ucp_worker_get_address(ucx->worker, &address, &size);
    if (status != UCS_OK) return ucx_error(e, status, "worker address");
    ucx->net = net_new(&ucx_transport, UCX_FRAME_BYTES, endpoint, address, size);
    ucp_worker_release_address(ucx->worker, address);
    if (ucx->net == NULL) return error_set(e, PAWL_MEMORY, 0, "endpoint");
    ucx->net->transport_state = ucx;
    return PAWL_OK;
}

pawl_code net_open_ucx(const char *transports, struct net **out, struct pawl_error *e) {
    *out = NULL;
    struct ucx *ucx = calloc(1, sizeof *ucx);
    if (ucx == NULL) return error_set(e, PAWL_MEMORY, 0, "UCX");
    ucx->in_flight.prev = ucx->in_flight.next = &ucx->in_flight;
    leave_alone();
    pawl_code code = open_context(ucx, transports, e);
    if (code == PAWL_OK) code = open_worker(ucx, e);
    if (code == PAWL_OK) code = make_net(ucx, e);
    if (code == PAWL_OK) {
        *out = ucx->net;
        return PAWL_OK;
    }
    if (ucx->worker != NULL) ucp_worker_destroy(ucx->worker);
    if (ucx->context != NULL) ucp_cleanup(ucx->context);
    free(ucx);
    return code;
}
