#include "stream.h"

#include <stdlib.h>
#include <string.h>

void stream_reset(struct stream *stream)
{
    memset(stream, 0, sizeof *stream);
}

bool stream_ended(const struct stream *stream)
{
    return memcmp(stream->tail, STREAM_END, STREAM_END_LENGTH) == 0;
}

static void keep_tail(struct stream *stream, const char *data, size_t length)
{
    if (length >= STREAM_END_LENGTH) {
        memcpy(stream->tail, data + length - STREAM_END_LENGTH, STREAM_END_LENGTH);
        return;
    }
    memmove(stream->tail, stream->tail + length, STREAM_END_LENGTH - length);
    memcpy(stream->tail + STREAM_END_LENGTH - length, data, length);
}

static void count_chunk(struct stream *stream, unsigned index)
{
    if (index >= STREAM_CHUNKS_MAX)
        return;
    uint8_t bit = (uint8_t)(1u << (index % 8));
    if (stream->seen[index / 8] & bit) {
        stream->duplicated++;
        return;
    }
    stream->seen[index / 8] |= bit;
    stream->distinct++;
    if (index < stream->highest)
        stream->reordered++;
    else
        stream->highest = index;
}

/* Collects bytes of a mark; returns how many it used. The mark is whole once mark_length is MARK_LENGTH. */
static size_t collect_mark(struct stream *stream, const char *data, size_t length)
{
    if (stream->mark_length == 1 && data[0] != 'T') { /* some other @ */
        stream->mark_length = 0;
        return 0;
    }
    size_t missing = stream->mark_length < MARK_TIME ? 1 : MARK_LENGTH - stream->mark_length;
    size_t taken = missing < length ? missing : length;
    memcpy(stream->mark + stream->mark_length, data, taken);
    stream->mark_length += taken;
    return taken;
}

void stream_feed(struct stream *stream, const char *data, size_t length, stream_mark on_mark, void *owner)
{
    keep_tail(stream, data, length);
    const char *end = data + length;
    while (data < end) {
        if (stream->mark_length == 0 && !(data = memchr(data, '@', (size_t)(end - data))))
            return;
        data += collect_mark(stream, data, (size_t)(end - data));
        if (stream->mark_length < MARK_LENGTH)
            continue;
        stream->mark_length = 0;
        stream->total = (unsigned)atoi(stream->mark + MARK_TOTAL);
        count_chunk(stream, (unsigned)atoi(stream->mark + MARK_INDEX));
        on_mark(owner, strtoull(stream->mark + MARK_TIME, NULL, 10));
    }
}
