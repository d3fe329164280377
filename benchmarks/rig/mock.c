/* Mock OpenAI upstream: one thread, epoll, HTTP/1.1 with keep-alive, 127.0.0.1 only.
 *
 *     mock [PORT]            without PORT, or with 0, the system chooses; the port is printed as the first line
 *
 * The request body steers the reply, so that a gateway in between hands the wish on:
 *     MOCK:reply=2048;                      a chat.completion of 2048 bytes
 *     MOCK:chunks=200,interval_us=20000;    200 streamed chunks, one every 20 ms (0: as fast as they can be written)
 * Each chunk is one write and carries a mark (marks.h). A stream whose request asks for usage ends with a usage chunk.
 * Every GET answers with one document that holds what health checks and model lists look for.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http.h"
#include "marks.h"
#include "timers.h"

#define MAX_REPLY 65536
#define EVENTS 256

#define EVENT_HEAD \
    "data: {\"id\":\"chatcmpl-mock\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\"model\":\"mock-model\","

static const char STREAM_HEAD[] = "HTTP/1.1 200 OK\r\n"
                                  "content-type: text/event-stream; charset=utf-8\r\n"
                                  "cache-control: no-cache\r\n"
                                  "transfer-encoding: chunked\r\n\r\n";
static const char REPLY_START[] = "{\"id\":\"chatcmpl-mock\",\"object\":\"chat.completion\",\"created\":1700000000,"
                                  "\"model\":\"mock-model\",\"choices\":[{\"index\":0,\"message\":"
                                  "{\"role\":\"assistant\",\"content\":\"";
static const char REPLY_END[] = "\"},\"logprobs\":null,\"finish_reason\":\"stop\"}],"
                                "\"usage\":{\"prompt_tokens\":200,\"completion_tokens\":180,\"total_tokens\":380}}";
static const char USAGE_EVENT[] = EVENT_HEAD "\"choices\":[],\"usage\":{\"prompt_tokens\":200,\"completion_tokens\":180,"
                                             "\"total_tokens\":380}}\n\n";
static const char DONE_EVENT[] = "data: [DONE]\n\n";
static const char FACTS[] = "{\"object\":\"list\",\"data\":[{\"id\":\"mock-model\",\"object\":\"model\",\"created\":1700000000,"
                            "\"owned_by\":\"mock\",\"max_model_len\":131072}],\"model_path\":\"mock-model\","
                            "\"served_model_name\":\"mock-model\",\"is_generation\":true,\"tp_size\":1,\"dp_size\":1}";

struct connection {
    struct timer timer; /* the next chunk; first member, so that a timer is its connection */
    int fd;
    bool writable_wanted; /* epoll reports when the socket takes bytes again */
    struct http_reader reader;
    struct buffer body;
    struct buffer input; /* requests that came in while a stream was running */
    struct buffer output;
    unsigned chunk, chunks; /* next chunk and number of chunks of the running stream; equal: no stream */
    uint64_t interval_ns;
    bool usage;
};

static struct connection *connections[TIMERS_MAX];
static struct timers timers;
static int poller;
static char filler[MAX_REPLY];

/* ---- connections ---- */

static void watch(struct connection *c, int operation, bool writable)
{
    struct epoll_event event = {.events = EPOLLIN | (writable ? EPOLLOUT : 0), .data.fd = c->fd};
    if (epoll_ctl(poller, operation, c->fd, &event))
        die("epoll_ctl");
    c->writable_wanted = writable;
}

static void collect_body(void *owner, const char *data, size_t length)
{
    struct connection *c = owner;
    buffer_append(&c->body, data, length);
}

static void accept_all(int listener)
{
    int fd, on = 1;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
        if (fd >= TIMERS_MAX) {
            close(fd);
            continue;
        }
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        struct connection *c = calloc(1, sizeof *c);
        if (!c)
            die("calloc");
        c->fd = fd;
        c->timer.index = TIMER_OFF;
        c->reader.sink = collect_body;
        c->reader.owner = c;
        connections[fd] = c;
        watch(c, EPOLL_CTL_ADD, false);
    }
}

static void drop(struct connection *c)
{
    timers_remove(&timers, &c->timer);
    connections[c->fd] = NULL;
    close(c->fd);
    free(c->body.data);
    free(c->input.data);
    free(c->output.data);
    free(c);
}

/* Sends what is pending and asks for a wake-up when not all went out; false: the peer is gone. */
static bool flush(struct connection *c)
{
    int result = buffer_flush(&c->output, c->fd);
    if (result >= 0 && c->writable_wanted != (result == 0))
        watch(c, EPOLL_CTL_MOD, result == 0);
    return result >= 0;
}

/* ---- replies ---- */

static void append_text(struct buffer *out, const char *text)
{
    buffer_append(out, text, strlen(text));
}

static void append_head(struct connection *c, size_t length)
{
    char head[128];
    snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %zu\r\n\r\n", length);
    append_text(&c->output, head);
}

static void reply_plain(struct connection *c, size_t size)
{
    size_t frame = strlen(REPLY_START) + strlen(REPLY_END);
    size_t text = size > frame ? size - frame : 1;
    if (text > MAX_REPLY)
        text = MAX_REPLY;
    append_head(c, frame + text);
    append_text(&c->output, REPLY_START);
    buffer_append(&c->output, filler, text);
    append_text(&c->output, REPLY_END);
}

static void append_event(struct buffer *out, const char *event)
{
    char size[16];
    snprintf(size, sizeof size, "%zx\r\n", strlen(event));
    append_text(out, size);
    append_text(out, event);
    append_text(out, "\r\n");
}

/* Writes the next chunk of a stream and, after the last one, the stream's end. */
static bool send_chunk(struct connection *c)
{
    char event[512];
    bool last = c->chunk + 1 == c->chunks;
    snprintf(event, sizeof event,
             EVENT_HEAD "\"choices\":[{\"index\":0,\"delta\":{%s\"content\":\" " MARK_FORMAT "\"},"
                        "\"logprobs\":null,\"finish_reason\":%s}]}\n\n",
             c->chunk == 0 ? "\"role\":\"assistant\"," : "", (unsigned long long)monotonic_ns(), c->chunk, c->chunks,
             last ? "\"stop\"" : "null");
    append_event(&c->output, event);
    c->chunk++;
    if (last) {
        if (c->usage)
            append_event(&c->output, USAGE_EVENT);
        append_event(&c->output, DONE_EVENT);
        append_text(&c->output, "0\r\n\r\n");
    }
    return flush(c);
}

/* The number that follows `name` in the first characters of a wish, or the fallback. */
static long wish_number(const char *wish, size_t length, const char *name, long fallback)
{
    const char *found = memmem(wish, length, name, strlen(name));
    return found ? atol(found + strlen(name)) : fallback;
}

static bool contains(const struct buffer *body, const char *text)
{
    return memmem(body->data, body->length, text, strlen(text)) != NULL;
}

static void start_stream(struct connection *c, long chunks, long interval_us)
{
    c->chunk = 0;
    c->chunks = (unsigned)(chunks > STREAM_CHUNKS_MAX ? STREAM_CHUNKS_MAX : chunks);
    c->interval_ns = (uint64_t)interval_us * 1000;
    c->timer.due_ns = monotonic_ns() + c->interval_ns;
    c->usage = contains(&c->body, "\"include_usage\":true") || contains(&c->body, "\"include_usage\": true");
    append_text(&c->output, STREAM_HEAD);
    timers_add(&timers, &c->timer);
}

static void answer(struct connection *c)
{
    if (memcmp(c->reader.head, "POST", 4) != 0) {
        append_head(c, strlen(FACTS));
        append_text(&c->output, FACTS);
        return;
    }
    const char *wish = c->body.length ? memmem(c->body.data, c->body.length, "MOCK:", 5) : NULL;
    const char *end = wish ? memchr(wish, ';', (size_t)(c->body.data + c->body.length - wish)) : NULL;
    size_t length = end ? (size_t)(end - wish) : 0;
    long chunks = wish_number(wish, length, "chunks=", 0);
    if (chunks > 0)
        start_stream(c, chunks, wish_number(wish, length, "interval_us=", 0));
    else
        reply_plain(c, (size_t)wish_number(wish, length, "reply=", 1024));
}

/* ---- the loop ---- */

static bool streaming(const struct connection *c)
{
    return c->chunk < c->chunks;
}

/* Answers the requests in `data`; what follows a stream's request waits until the stream has ended. */
static bool serve(struct connection *c, const char *data, size_t length)
{
    size_t used = 0;
    while (used < length && !streaming(c)) {
        used += http_feed(&c->reader, data + used, length - used);
        if (c->reader.phase == HTTP_BROKEN)
            return false;
        if (c->reader.phase != HTTP_DONE)
            continue;
        answer(c);
        c->body.length = 0;
        http_reset(&c->reader);
    }
    buffer_append(&c->input, data + used, length - used);
    return flush(c);
}

static bool serve_waiting(struct connection *c)
{
    struct buffer waiting = c->input;
    c->input = (struct buffer){0};
    bool alive = waiting.length == 0 || serve(c, waiting.data, waiting.length);
    free(waiting.data);
    return alive;
}

static bool on_readable(struct connection *c)
{
    static char chunk[1 << 18];
    ssize_t n = recv(c->fd, chunk, sizeof chunk, 0);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR;
    return n > 0 && serve(c, chunk, (size_t)n);
}

/* The socket takes bytes again: a stream that was held back goes on. */
static bool on_writable(struct connection *c)
{
    if (!flush(c))
        return false;
    if (streaming(c) && c->output.length == 0 && c->timer.index == TIMER_OFF)
        timers_add(&timers, &c->timer);
    return true;
}

static void on_event(const struct epoll_event *event)
{
    struct connection *c = connections[event->data.fd];
    if (!c)
        return;
    bool alive = !(event->events & EPOLLOUT) || on_writable(c);
    if (alive && event->events & (EPOLLIN | EPOLLHUP | EPOLLERR))
        alive = on_readable(c);
    if (!alive)
        drop(c);
}

static bool send_due_chunk(struct connection *c, uint64_t now)
{
    timers_remove(&timers, &c->timer);
    if (!send_chunk(c))
        return false;
    if (!streaming(c))
        return serve_waiting(c);
    c->timer.due_ns = c->interval_ns ? c->timer.due_ns + c->interval_ns : now + 1; /* + 1: behind the others */
    if (c->output.length == 0) /* otherwise on_writable continues once the peer has read */
        timers_add(&timers, &c->timer);
    return true;
}

/* One chunk for each stream that is due at this moment; the sockets get a turn between two such rounds. */
static void send_due_chunks(void)
{
    uint64_t now = monotonic_ns();
    while (timers.count > 0 && timers.heap[0]->due_ns <= now) {
        struct connection *c = (struct connection *)timers.heap[0];
        if (!send_due_chunk(c, now))
            drop(c);
    }
}

static int wait_for_events(struct epoll_event *events)
{
    if (timers.count == 0)
        return epoll_wait(poller, events, EVENTS, -1);
    uint64_t now = monotonic_ns(), due = timers.heap[0]->due_ns;
    uint64_t pause = due > now ? due - now : 0;
    struct timespec timeout = {.tv_sec = (time_t)(pause / 1000000000u), .tv_nsec = (long)(pause % 1000000000u)};
    return epoll_pwait2(poller, events, EVENTS, &timeout, NULL);
}

static int open_listener(int port)
{
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&address, length) || listen(fd, 2048))
        die("listen");
    getsockname(fd, (struct sockaddr *)&address, &length);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    return fd;
}

int main(int argc, char **argv)
{
    static const char letters[] = "the mock answers with plain words ";
    for (size_t i = 0; i < sizeof filler; i++)
        filler[i] = letters[i % (sizeof letters - 1)];
    int listener = open_listener(argc > 1 ? atoi(argv[1]) : 0);
    poller = epoll_create1(0);
    struct epoll_event events[EVENTS], incoming = {.events = EPOLLIN, .data.fd = listener};
    epoll_ctl(poller, EPOLL_CTL_ADD, listener, &incoming);
    for (;;) {
        int count = wait_for_events(events);
        for (int i = 0; i < count; i++) {
            if (events[i].data.fd == listener)
                accept_all(listener);
            else
                on_event(&events[i]);
        }
        send_due_chunks();
    }
}
