/* Timers ordered by due time: a binary heap. A timer is embedded in what it wakes. */
#ifndef RIG_TIMERS_H
#define RIG_TIMERS_H

#include <stdint.h>

#define TIMERS_MAX 8192
#define TIMER_OFF (-1)

struct timer {
    uint64_t due_ns;
    int index; /* place in the heap, or TIMER_OFF */
};

struct timers {
    struct timer *heap[TIMERS_MAX];
    int count;
};

void timers_add(struct timers *timers, struct timer *timer);
void timers_remove(struct timers *timers, struct timer *timer);

#endif
