/* Load client: one thread, epoll, HTTP/1.1 with keep-alive to 127.0.0.1. Prints one JSON object; times in microseconds.
 *
 *     load --port P --body FILE [--connections N] [--seconds S] [--warmup S] [--rate R] [--stream] [--stagger-us U]
 *          [--path PATH] [--header "Name: value"]...
 *
 * Closed loop (no --rate): each connection sends its next request when an answer has ended.
 * Open loop (--rate R): requests fall due at R per second whatever the server does; latency counts from the due time.
 * --stream: time to the first mark, delay of each chunk from its writing to its arrival, gaps between chunks, and chunks
 * that were lost, duplicated or out of order.
 *
 * After the time is up no request starts, and those in flight are awaited: `completed` and `chunks_total` then count all
 * the work that the server did, warm-up included, which is what its CPU time has to be divided by. Times and rates are taken
 * from what was sent after the warm-up.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http.h"
#include "samples.h"
#include "stream.h"

#define EVENTS 256
#define DRAIN_NS 10000000000ull
#define NS_PER_US 1e3

struct options {
    int port, connections;
    double seconds, warmup, rate;
    bool stream;
    long stagger_us;
    const char *path, *body_file;
    char headers[4096];
};

struct connection {
    int fd;
    bool busy, writable_wanted, measured;
    size_t sent;        /* bytes of the request that are out */
    uint64_t start_ns;  /* when the request was sent, or was due */
    uint64_t last_ns;   /* arrival of the latest chunk; 0: none yet */
    uint64_t first_ns;  /* closed loop: when this connection begins */
    struct http_reader reader;
    struct stream stream;
};

static struct options options = {
    .connections = 1, .seconds = 3, .path = "/v1/chat/completions", .port = 8080};
static char *request;
static size_t request_length;
static int poller;
static struct connection *connections;
static struct connection **idle; /* a stack */
static int idle_count;
static uint64_t measure_from_ns, stop_ns, arrived_ns;
static uint64_t next_due_ns, unsent_backlog;
static struct samples latency, ttft, delay, gap;
static struct {
    uint64_t completed, measured, failed, chunks_total, chunks_measured, lost, duplicated, reordered;
} counts;

/* ---- connections ---- */

static void watch(struct connection *c, int operation, bool writable)
{
    struct epoll_event event = {.events = EPOLLIN | (writable ? EPOLLOUT : 0), .data.ptr = c};
    if (epoll_ctl(poller, operation, c->fd, &event))
        die("epoll_ctl");
    c->writable_wanted = writable;
}

static void open_connection(struct connection *c)
{
    int on = 1;
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)options.port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&address, sizeof address))
        die("connect");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    watch(c, EPOLL_CTL_ADD, false);
}

/* Sends as much of the request as the socket takes; false: the connection is gone. */
static bool send_request(struct connection *c)
{
    while (c->sent < request_length) {
        ssize_t n = send(c->fd, request + c->sent, request_length - c->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno != EAGAIN)
            return false;
        if (n < 0)
            break;
        c->sent += (size_t)n;
    }
    bool unfinished = c->sent < request_length;
    if (unfinished != c->writable_wanted)
        watch(c, EPOLL_CTL_MOD, unfinished);
    return true;
}

static void begin_request(struct connection *c, uint64_t start_ns)
{
    http_reset(&c->reader);
    if (options.stream)
        stream_reset(&c->stream);
    c->busy = true;
    c->measured = start_ns >= measure_from_ns;
    c->sent = 0;
    c->last_ns = 0;
    c->start_ns = start_ns;
    if (send_request(c))
        return;
    /* The server closed an idle connection: once more on a new one. */
    close(c->fd);
    open_connection(c);
    c->sent = 0;
    send_request(c);
}

/* ---- answers ---- */

static void on_mark(void *owner, uint64_t written_ns)
{
    struct connection *c = owner;
    counts.chunks_total++;
    if (c->measured) {
        counts.chunks_measured++;
        samples_add(&delay, (double)(arrived_ns - written_ns) / NS_PER_US);
        if (c->last_ns)
            samples_add(&gap, (double)(arrived_ns - c->last_ns) / NS_PER_US);
        else
            samples_add(&ttft, (double)(arrived_ns - c->start_ns) / NS_PER_US);
    }
    c->last_ns = arrived_ns;
}

static void on_body(void *owner, const char *data, size_t length)
{
    struct connection *c = owner;
    if (options.stream)
        stream_feed(&c->stream, data, length, on_mark, c);
}

static void count_stream(const struct connection *c)
{
    counts.lost += c->stream.total - c->stream.distinct;
    counts.duplicated += c->stream.duplicated;
    counts.reordered += c->stream.reordered;
}

static void finish_request(struct connection *c, bool whole)
{
    c->busy = false;
    if (options.stream)
        count_stream(c);
    if (!whole || http_status(&c->reader) != 200 || (options.stream && !stream_ended(&c->stream))) {
        counts.failed++;
        return;
    }
    counts.completed++;
    if (c->measured) {
        counts.measured++;
        samples_add(&latency, (double)(arrived_ns - c->start_ns) / NS_PER_US);
    }
}

/* What a connection does once it is free: its next request, or it joins the idle ones. */
static void take_next(struct connection *c)
{
    uint64_t now = monotonic_ns();
    bool open_loop = options.rate > 0;
    if (!open_loop && now < stop_ns) {
        begin_request(c, now);
    } else if (open_loop && next_due_ns <= now && next_due_ns < stop_ns) {
        begin_request(c, next_due_ns);
        next_due_ns += (uint64_t)(1e9 / options.rate);
    } else {
        idle[idle_count++] = c;
    }
}

static void on_closed(struct connection *c)
{
    bool was_busy = c->busy;
    if (was_busy)
        finish_request(c, c->reader.phase == HTTP_UNTIL_CLOSE);
    close(c->fd);
    open_connection(c);
    if (was_busy)
        take_next(c);
}

static void on_readable(struct connection *c)
{
    static char chunk[1 << 18];
    ssize_t n = recv(c->fd, chunk, sizeof chunk, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    arrived_ns = monotonic_ns();
    if (n > 0 && c->busy)
        http_feed(&c->reader, chunk, (size_t)n);
    if (n <= 0 || !c->busy || c->reader.phase == HTTP_BROKEN) {
        on_closed(c);
    } else if (c->reader.phase == HTTP_DONE) {
        finish_request(c, true);
        take_next(c);
    }
}

/* ---- the loop ---- */

/* Starts what is due; returns when the next thing falls due. */
static uint64_t start_due(uint64_t now)
{
    uint64_t wake = stop_ns;
    if (options.rate > 0) {
        while (idle_count && next_due_ns <= now && next_due_ns < stop_ns)
            take_next(idle[--idle_count]);
        return idle_count && next_due_ns < wake ? next_due_ns : wake;
    }
    for (int i = idle_count - 1; i >= 0; i--) { /* connections that have not begun yet; the next one is on top */
        struct connection *c = idle[i];
        if (c->first_ns > now)
            return c->first_ns < wake ? c->first_ns : wake;
        idle_count--;
        begin_request(c, now);
    }
    return wake;
}

static void poll_until(uint64_t wake_ns)
{
    struct epoll_event events[EVENTS];
    uint64_t now = monotonic_ns();
    uint64_t pause = wake_ns > now ? wake_ns - now : 0;
    struct timespec timeout = {.tv_sec = (time_t)(pause / 1000000000u), .tv_nsec = (long)(pause % 1000000000u)};
    int count = epoll_pwait2(poller, events, EVENTS, &timeout, NULL);
    for (int i = 0; i < count; i++) {
        struct connection *c = events[i].data.ptr;
        if (events[i].events & EPOLLOUT)
            send_request(c); /* a failure shows as a closed connection */
        if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))
            on_readable(c);
    }
}

static int busy_count(void)
{
    int busy = 0;
    for (int i = 0; i < options.connections; i++)
        busy += connections[i].busy;
    return busy;
}

static void run(void)
{
    for (uint64_t now = monotonic_ns(); now < stop_ns; now = monotonic_ns())
        poll_until(start_due(now));
    if (options.rate > 0 && next_due_ns < stop_ns)
        unsent_backlog = (uint64_t)((double)(stop_ns - next_due_ns) * options.rate / 1e9);
    uint64_t give_up = stop_ns + DRAIN_NS;
    for (int busy = busy_count(); busy > 0 && monotonic_ns() < give_up; busy = busy_count())
        poll_until(give_up);
}

/* ---- start and end ---- */

static void set_up(void)
{
    size_t count = (size_t)options.connections;
    poller = epoll_create1(0);
    connections = calloc(count, sizeof *connections);
    idle = calloc(count, sizeof *idle);
    if (!connections || !idle)
        die("calloc");
    for (size_t i = 0; i < count; i++) {
        struct connection *c = &connections[i];
        c->reader.response = true;
        c->reader.sink = on_body;
        c->reader.owner = c;
        open_connection(c);
        idle[count - 1 - i] = c;
    }
    idle_count = options.connections;
    uint64_t start = monotonic_ns();
    for (size_t i = 0; i < count; i++)
        connections[i].first_ns = start + i * (uint64_t)options.stagger_us * 1000;
    next_due_ns = start;
    measure_from_ns = start + (uint64_t)(options.warmup * 1e9);
    stop_ns = measure_from_ns + (uint64_t)(options.seconds * 1e9);
}

static void build_request(void)
{
    struct buffer body = {0}, whole = {0};
    char chunk[1 << 16], head[sizeof options.headers + 1024];
    size_t n;
    FILE *file = fopen(options.body_file, "rb");
    if (!file)
        die(options.body_file);
    while ((n = fread(chunk, 1, sizeof chunk, file)) > 0)
        buffer_append(&body, chunk, n);
    fclose(file);
    int length = snprintf(head, sizeof head,
                          "POST %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/json\r\n%s"
                          "Content-Length: %zu\r\n\r\n",
                          options.path, options.port, options.headers, body.length);
    buffer_append(&whole, head, (size_t)length);
    buffer_append(&whole, body.data, body.length);
    request = whole.data;
    request_length = whole.length;
    free(body.data);
}

static void add_header(const char *line)
{
    size_t used = strlen(options.headers);
    snprintf(options.headers + used, sizeof options.headers - used, "%s\r\n", line);
}

static void parse_options(int argc, char **argv)
{
    static const struct option known[] = {
        {"port", required_argument, NULL, 'p'},     {"body", required_argument, NULL, 'b'},
        {"connections", required_argument, NULL, 'c'}, {"seconds", required_argument, NULL, 'd'},
        {"warmup", required_argument, NULL, 'w'},   {"rate", required_argument, NULL, 'r'},
        {"stream", no_argument, NULL, 's'},         {"stagger-us", required_argument, NULL, 'g'},
        {"path", required_argument, NULL, 'P'},     {"header", required_argument, NULL, 'H'},
        {NULL, 0, NULL, 0},
    };
    int option;
    while ((option = getopt_long(argc, argv, "", known, NULL)) > 0) {
        switch (option) {
        case 'p': options.port = atoi(optarg); break;
        case 'b': options.body_file = optarg; break;
        case 'c': options.connections = atoi(optarg); break;
        case 'd': options.seconds = atof(optarg); break;
        case 'w': options.warmup = atof(optarg); break;
        case 'r': options.rate = atof(optarg); break;
        case 's': options.stream = true; break;
        case 'g': options.stagger_us = atol(optarg); break;
        case 'P': options.path = optarg; break;
        case 'H': add_header(optarg); break;
        default: exit(2);
        }
    }
    if (!options.body_file || options.connections < 1) {
        fprintf(stderr, "load: --body is needed, and at least one connection\n");
        exit(2);
    }
}

static void print_report(void)
{
    printf("{\"seconds\":%.3f,\"completed\":%llu,\"measured\":%llu,\"failed\":%llu,\"unfinished\":%d,\"backlog\":%llu,",
           options.seconds, (unsigned long long)counts.completed, (unsigned long long)counts.measured,
           (unsigned long long)counts.failed, busy_count(), (unsigned long long)unsent_backlog);
    printf("\"chunks_total\":%llu,\"chunks_measured\":%llu,\"lost\":%llu,\"duplicated\":%llu,\"reordered\":%llu,",
           (unsigned long long)counts.chunks_total, (unsigned long long)counts.chunks_measured,
           (unsigned long long)counts.lost, (unsigned long long)counts.duplicated,
           (unsigned long long)counts.reordered);
    samples_print(&latency, "latency_us");
    printf(",");
    samples_print(&ttft, "ttft_us");
    printf(",");
    samples_print(&delay, "chunk_delay_us");
    printf(",");
    samples_print(&gap, "gap_us");
    printf("}\n");
}

int main(int argc, char **argv)
{
    parse_options(argc, argv);
    build_request();
    set_up();
    run();
    print_report();
    return 0;
}
