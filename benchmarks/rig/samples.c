#include "samples.h"

#include <stdio.h>
#include <stdlib.h>

#include "http.h"

void samples_add(struct samples *samples, double value)
{
    if (samples->count == samples->capacity) {
        samples->capacity = samples->capacity ? samples->capacity * 2 : 1 << 16;
        samples->values = realloc(samples->values, samples->capacity * sizeof *samples->values);
        if (!samples->values)
            die("realloc");
    }
    samples->values[samples->count++] = (float)value;
}

static int compare(const void *left, const void *right)
{
    float a = *(const float *)left, b = *(const float *)right;
    return (a > b) - (a < b);
}

static double percentile(const struct samples *samples, double share)
{
    return samples->values[(size_t)(share * (double)(samples->count - 1) + 0.5)];
}

void samples_print(struct samples *samples, const char *name)
{
    printf("\"%s\":{\"n\":%zu", name, samples->count);
    if (samples->count) {
        qsort(samples->values, samples->count, sizeof *samples->values, compare);
        printf(",\"p50\":%.1f,\"p90\":%.1f,\"p99\":%.1f,\"max\":%.1f", percentile(samples, 0.5),
               percentile(samples, 0.9), percentile(samples, 0.99), percentile(samples, 1));
    }
    printf("}");
}
