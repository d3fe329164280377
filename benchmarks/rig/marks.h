/* The mark that the mock puts into every streamed chunk and the load client finds again:
 *     @T<time>.<index>.<total>    19, 6 and 6 digits
 * time: CLOCK_MONOTONIC at the write, in nanoseconds (one clock, as both run on one host); index: from 0, within the stream.
 */
#ifndef RIG_MARKS_H
#define RIG_MARKS_H

#define MARK_FORMAT "@T%019llu.%06u.%06u"
#define MARK_LENGTH (2 + 19 + 1 + 6 + 1 + 6)
#define MARK_TIME 2
#define MARK_INDEX (MARK_TIME + 19 + 1)
#define MARK_TOTAL (MARK_INDEX + 6 + 1)
#define STREAM_CHUNKS_MAX 4096

#endif
