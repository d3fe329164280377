/* Follows one streamed answer: finds the marks (marks.h) however the bytes were cut, checks their order, sees the end. */
#ifndef RIG_STREAM_H
#define RIG_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "marks.h"

#define STREAM_END "data: [DONE]\n\n"
#define STREAM_END_LENGTH (sizeof STREAM_END - 1)

struct stream {
    char mark[MARK_LENGTH + 1];
    size_t mark_length;            /* bytes of a mark that has begun */
    unsigned total;                /* chunks that the marks announce; 0 before the first one */
    unsigned distinct;
    unsigned highest;
    unsigned duplicated;
    unsigned reordered;
    uint8_t seen[STREAM_CHUNKS_MAX / 8];
    char tail[STREAM_END_LENGTH];  /* last bytes of the body */
};

/* Called for each mark with the time of its writing. */
typedef void (*stream_mark)(void *owner, uint64_t written_ns);

void stream_reset(struct stream *stream);
void stream_feed(struct stream *stream, const char *data, size_t length, stream_mark on_mark, void *owner);

/* The last event was [DONE]. */
bool stream_ended(const struct stream *stream);

#endif
