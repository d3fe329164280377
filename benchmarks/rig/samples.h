/* A growing list of measured values and its percentiles. */
#ifndef RIG_SAMPLES_H
#define RIG_SAMPLES_H

#include <stddef.h>

struct samples {
    float *values;
    size_t count;
    size_t capacity;
};

void samples_add(struct samples *samples, double value);

/* Prints `"name":{"n":...,"p50":...,"p90":...,"p99":...,"max":...}`; sorts the values. An empty list prints n alone. */
void samples_print(struct samples *samples, const char *name);

#endif
