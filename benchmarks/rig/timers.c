#include "timers.h"

static void place(struct timers *timers, int index, struct timer *timer)
{
    timers->heap[index] = timer;
    timer->index = index;
}

static void move_up(struct timers *timers, struct timer *timer)
{
    int index = timer->index;
    while (index > 0 && timers->heap[(index - 1) / 2]->due_ns > timer->due_ns) {
        place(timers, index, timers->heap[(index - 1) / 2]);
        index = (index - 1) / 2;
    }
    place(timers, index, timer);
}

static void move_down(struct timers *timers, struct timer *timer)
{
    int index = timer->index;
    for (int child = 2 * index + 1; child < timers->count; child = 2 * index + 1) {
        if (child + 1 < timers->count && timers->heap[child + 1]->due_ns < timers->heap[child]->due_ns)
            child++;
        if (timers->heap[child]->due_ns >= timer->due_ns)
            break;
        place(timers, index, timers->heap[child]);
        index = child;
    }
    place(timers, index, timer);
}

void timers_add(struct timers *timers, struct timer *timer)
{
    place(timers, timers->count++, timer);
    move_up(timers, timer);
}

void timers_remove(struct timers *timers, struct timer *timer)
{
    int index = timer->index;
    if (index == TIMER_OFF)
        return;
    timer->index = TIMER_OFF;
    struct timer *last = timers->heap[--timers->count];
    if (last == timer)
        return;
    place(timers, index, last);
    move_up(timers, last);
    move_down(timers, last);
}
