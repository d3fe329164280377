/* Incremental HTTP/1.1 reader and a growable output buffer, shared by the mock upstream and the load client. */
#ifndef RIG_HTTP_H
#define RIG_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HTTP_HEAD_MAX 8192

enum http_phase {
    HTTP_HEAD,
    HTTP_SIZED,       /* body of a known length */
    HTTP_CHUNK_SIZE,  /* the line with a chunk's size */
    HTTP_CHUNK_DATA,
    HTTP_CHUNK_END,   /* the line end after a chunk's data */
    HTTP_TRAILER,
    HTTP_UNTIL_CLOSE, /* a response whose body ends with the connection */
    HTTP_DONE,
    HTTP_BROKEN,
};

/* Receives the body as it arrives, without the transfer coding. */
typedef void (*http_sink)(void *owner, const char *data, size_t length);

struct http_reader {
    enum http_phase phase;
    bool response;
    http_sink sink;
    void *owner;
    uint64_t remaining;       /* bytes left of the body or chunk; the size while its line is read */
    size_t line_length;       /* of the trailer line being read */
    size_t head_length;
    char head[HTTP_HEAD_MAX]; /* NUL-terminated once the phase is past HTTP_HEAD */
};

void http_reset(struct http_reader *reader);

/* Reads from data, stops at the end of one message; returns how many bytes it used. */
size_t http_feed(struct http_reader *reader, const char *data, size_t length);

/* Status of the response whose head was read. */
int http_status(const struct http_reader *reader);

struct buffer {
    char *data;
    size_t length;
    size_t sent;
    size_t capacity;
};

void buffer_append(struct buffer *buffer, const void *data, size_t length);

/* Writes what is pending: 1 all written, 0 the socket is full, -1 the connection is gone. */
int buffer_flush(struct buffer *buffer, int fd);

uint64_t monotonic_ns(void);
void die(const char *what);

#endif
