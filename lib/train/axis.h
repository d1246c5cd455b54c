/* Numbers as people read them, and the scales that curves are drawn on. */
#ifndef MMI_TRAIN_AXIS_H
#define MMI_TRAIN_AXIS_H

#include <stdbool.h>
#include <stdint.h>

#define MMI_AXIS_TICKS 12
#define MMI_AXIS_LENGTH 10000.0 /* drawings are so wide and so high; the browser stretches them */

typedef struct mmi_axis {
    double low, high;
    bool log;
    int ticks;
    double tick[MMI_AXIS_TICKS];
    char label[MMI_AXIS_TICKS][24];
} mmi_axis;

/* From a round number to a round one, with about `target` steps between. low <= high, both finite. */
void mmi_axis_linear(mmi_axis *axis, double low, double high, int target);

/* Just around the data; 0 < low <= high. */
void mmi_axis_log(mmi_axis *axis, double low, double high);

/* From 0 to `last` steps exactly. */
void mmi_axis_steps(mmi_axis *axis, int64_t last);

/* Where a value lies, in [0, MMI_AXIS_LENGTH]. */
double mmi_axis_place(const mmi_axis *axis, double value);

/* A number in JSON's and SVG's spelling, whatever the host's locale says: `digits` significant ones. "null" if it is
 * not finite. */
void mmi_number(char out[32], double value, int digits);

/* With thousands set apart: "1,234,567". */
void mmi_count(char out[32], int64_t value);

#endif
