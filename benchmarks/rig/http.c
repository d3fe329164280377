#define _GNU_SOURCE
#include "http.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

void die(const char *what)
{
    perror(what);
    exit(2);
}

uint64_t monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void http_reset(struct http_reader *reader)
{
    reader->phase = HTTP_HEAD;
    reader->remaining = 0;
    reader->line_length = 0;
    reader->head_length = 0;
}

int http_status(const struct http_reader *reader)
{
    return atoi(reader->head + strlen("HTTP/1.1 "));
}

/* Decides from a complete head how the body is delimited. */
static void begin_body(struct http_reader *reader)
{
    const char *length = strcasestr(reader->head, "\r\ncontent-length:");
    if (strcasestr(reader->head, "\r\ntransfer-encoding: chunked")) {
        reader->phase = HTTP_CHUNK_SIZE;
    } else if (length) {
        reader->remaining = strtoull(length + strlen("\r\ncontent-length:"), NULL, 10);
        reader->phase = reader->remaining ? HTTP_SIZED : HTTP_DONE;
    } else {
        reader->phase = reader->response ? HTTP_UNTIL_CLOSE : HTTP_DONE;
    }
}

/* Collects the head; returns how many of the bytes belong to it. */
static size_t feed_head(struct http_reader *reader, const char *data, size_t length)
{
    size_t before = reader->head_length;
    size_t room = HTTP_HEAD_MAX - 1 - before;
    size_t taken = length < room ? length : room;
    memcpy(reader->head + before, data, taken);
    /* The terminator may straddle two reads: look again at the last three bytes of the earlier ones. */
    size_t from = before > 3 ? before - 3 : 0;
    char *end = memmem(reader->head + from, before + taken - from, "\r\n\r\n", 4);
    if (!end) {
        reader->head_length = before + taken;
        if (taken < length)
            reader->phase = HTTP_BROKEN;
        return taken;
    }
    reader->head_length = (size_t)(end - reader->head) + 4;
    reader->head[reader->head_length] = '\0';
    begin_body(reader);
    return reader->head_length - before;
}

/* Hands body bytes on; returns how many belonged to this body or chunk. */
static size_t feed_body(struct http_reader *reader, const char *data, size_t length, enum http_phase next)
{
    size_t taken = length < reader->remaining ? length : (size_t)reader->remaining;
    reader->sink(reader->owner, data, taken);
    reader->remaining -= taken;
    if (reader->remaining == 0)
        reader->phase = next;
    return taken;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* One byte of the chunked coding outside the chunks' data. */
static void feed_framing(struct http_reader *reader, char c)
{
    switch (reader->phase) {
    case HTTP_CHUNK_SIZE:
        if (c == '\n')
            reader->phase = reader->remaining ? HTTP_CHUNK_DATA : HTTP_TRAILER;
        else if (hex_digit(c) >= 0)
            reader->remaining = reader->remaining * 16 + (uint64_t)hex_digit(c);
        else if (c != '\r')
            reader->phase = HTTP_BROKEN; /* chunk extensions are not used by anyone here */
        break;
    case HTTP_CHUNK_END:
        if (c == '\n')
            reader->phase = HTTP_CHUNK_SIZE;
        break;
    default: /* HTTP_TRAILER: an empty line ends the message */
        if (c == '\n' && reader->line_length == 0)
            reader->phase = HTTP_DONE;
        else if (c == '\n')
            reader->line_length = 0;
        else if (c != '\r')
            reader->line_length++;
    }
}

size_t http_feed(struct http_reader *reader, const char *data, size_t length)
{
    size_t used = 0;
    while (used < length && reader->phase != HTTP_DONE && reader->phase != HTTP_BROKEN) {
        switch (reader->phase) {
        case HTTP_HEAD:
            used += feed_head(reader, data + used, length - used);
            break;
        case HTTP_SIZED:
            used += feed_body(reader, data + used, length - used, HTTP_DONE);
            break;
        case HTTP_CHUNK_DATA:
            used += feed_body(reader, data + used, length - used, HTTP_CHUNK_END);
            break;
        case HTTP_UNTIL_CLOSE:
            reader->sink(reader->owner, data + used, length - used);
            used = length;
            break;
        default:
            feed_framing(reader, data[used++]);
        }
    }
    return used;
}

void buffer_append(struct buffer *buffer, const void *data, size_t length)
{
    if (length == 0)
        return;
    if (buffer->length + length > buffer->capacity) {
        buffer->capacity = (buffer->length + length) * 2;
        buffer->data = realloc(buffer->data, buffer->capacity);
        if (!buffer->data)
            die("realloc");
    }
    memcpy(buffer->data + buffer->length, data, length);
    buffer->length += length;
}

int buffer_flush(struct buffer *buffer, int fd)
{
    while (buffer->sent < buffer->length) {
        ssize_t n = send(fd, buffer->data + buffer->sent, buffer->length - buffer->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN ? 0 : -1;
        buffer->sent += (size_t)n;
    }
    buffer->sent = buffer->length = 0;
    return 1;
}
