/* A record is: its length (8 bytes, little-endian), that length's masked CRC32C (4), the message, the message's masked
 * CRC32C. The messages are Event, Summary and SessionLog of TensorFlow; of these few fields are needed, so they are
 * written by hand: a varint, two fixed sizes, and a length before bytes. */
#define _POSIX_C_SOURCE 200809L

#include "train/events.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"

static void put(mmi_proto *p, const void *data, size_t size)
{
    if (p->failed || !mmi_grow(&p->bytes, &p->room, p->size + size, 1)) {
        p->failed = true;
        return;
    }
    if (size > 0)
        memcpy(p->bytes + p->size, data, size);
    p->size += size;
}

static void put_little(mmi_proto *p, uint64_t value, int bytes)
{
    unsigned char out[8];
    for (int i = 0; i < bytes; i++)
        out[i] = (unsigned char)(value >> 8 * i);
    put(p, out, (size_t)bytes);
}

static void put_varint(mmi_proto *p, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        put_little(p, (value & 0x7F) | 0x80, 1);
    put_little(p, value, 1);
}

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

static void put_tag(mmi_proto *p, uint32_t field, uint32_t type)
{
    put_varint(p, field << 3 | type);
}

static void field_int(mmi_proto *p, uint32_t field, int64_t value)
{
    put_tag(p, field, VARINT);
    put_varint(p, (uint64_t)value);
}

static void field_bytes(mmi_proto *p, uint32_t field, const void *data, size_t size)
{
    put_tag(p, field, BYTES);
    put_varint(p, size);
    put(p, data, size);
}

static void field_double(mmi_proto *p, uint32_t field, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_tag(p, field, FIXED64);
    put_little(p, bits, 8);
}

static void field_float(mmi_proto *p, uint32_t field, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_tag(p, field, FIXED32);
    put_little(p, bits, 4);
}

/* A message within a message; `inner` is then empty again. */
static void field_message(mmi_proto *p, uint32_t field, mmi_proto *inner)
{
    p->failed |= inner->failed;
    field_bytes(p, field, inner->bytes, inner->size);
    inner->size = 0;
    inner->failed = false;
}

static uint32_t crc32c(const unsigned char *data, size_t size)
{
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < size; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (0x82F63B78 & (0 - (crc & 1)));
    }
    return ~crc;
}

/* Records may hold checksums of their own; a checksum over those would be a weak one, so it is turned and shifted. */
static uint32_t masked(uint32_t crc)
{
    return (crc >> 15 | crc << 17) + 0xA282EAD8;
}

enum { EVENT_TIME = 1, EVENT_STEP = 2, EVENT_VERSION = 3, EVENT_SUMMARY = 5, EVENT_SESSION = 7 };
enum { SUMMARY_VALUE = 1 };
enum { VALUE_TAG = 1, VALUE_SCALAR = 2, VALUE_TENSOR = 8, VALUE_METADATA = 9 };
enum { METADATA_PLUGIN = 1, METADATA_CLASS = 4, PLUGIN_NAME = 1, CLASS_TENSOR = 2 };
enum { TENSOR_TYPE = 1, TENSOR_SHAPE = 2, TENSOR_STRING = 8, TYPE_STRING = 7 };
enum { SESSION_STATUS = 1, SESSION_START = 1 };

static void begin_event(mmi_events *e, int64_t step, double time)
{
    e->event.size = 12; /* room for what stands before the message */
    e->event.failed = !mmi_grow(&e->event.bytes, &e->event.room, 256, 1);
    field_double(&e->event, EVENT_TIME, time);
    field_int(&e->event, EVENT_STEP, step);
}

static mm_status write_event(mmi_events *e)
{
    mmi_proto *p = &e->event;
    mmi_proto head = { 0 };
    unsigned char bytes[12];
    size_t size = p->size;
    if (!p->failed) {
        uint32_t crc = masked(crc32c(p->bytes + 12, size - 12));
        put_little(p, crc, 4);
    }
    if (p->failed)
        return mmi_fail_memory(size, "an event for TensorBoard");
    head = (mmi_proto){ bytes, 0, sizeof bytes, false };
    put_little(&head, size - 12, 8);
    put_little(&head, masked(crc32c(bytes, 8)), 4);
    memcpy(p->bytes, bytes, sizeof bytes);
    return mmi_appender_put(&e->file, p->bytes, p->size);
}

/* "events.out.tfevents.SECONDS.HOST.PROCESS.N", a name that no file has. */
static mm_status open_new(mmi_events *e, const char *directory, double time)
{
    char host[64], name[160];
    char *path = NULL;
    mmi_host_name(host, sizeof host);
    for (char *c = host; *c; c++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-.", *c))
            *c = '-';
    for (int n = 0;; n++) {
        snprintf(name, sizeof name, "events.out.tfevents.%010lld.%s.%ld.%d", (long long)time, host, (long)getpid(), n);
        path = mmi_path_join(directory, name);
        if (!path || access(path, F_OK) != 0) /* what can't be looked at can't be opened either, and says why */
            break;
        mmi_free(path);
    }
    if (!path)
        return mmi_fail_memory(0, "a path");
    mm_status status = mmi_appender_open(&e->file, path);
    mmi_free(path);
    return status;
}

mm_status mmi_events_open(mmi_events *e, const char *directory, int64_t step)
{
    static const char version[] = "brain.Event:2";
    double time = mmi_wall_time();
    mm_status status = open_new(e, directory, time);
    if (status != MM_OK)
        return status;
    begin_event(e, 0, time);
    field_bytes(&e->event, EVENT_VERSION, version, sizeof version - 1);
    status = write_event(e);
    if (status != MM_OK || step < 0)
        return status;
    begin_event(e, step, time);
    field_int(&e->part[0], SESSION_STATUS, SESSION_START);
    field_message(&e->event, EVENT_SESSION, &e->part[0]);
    return write_event(e);
}

void mmi_events_close(mmi_events *e)
{
    mmi_appender_close(&e->file);
    mmi_free(e->summary.bytes);
    mmi_free(e->event.bytes);
    for (int i = 0; i < 3; i++)
        mmi_free(e->part[i].bytes);
    memset(e, 0, sizeof *e);
}

void mmi_events_begin(mmi_events *e)
{
    e->summary.size = 0;
    e->summary.failed = false;
}

void mmi_events_scalar(mmi_events *e, const char *name, double value)
{
    mmi_proto *p = &e->part[0];
    field_bytes(p, VALUE_TAG, name, strlen(name));
    field_float(p, VALUE_SCALAR, (float)value);
    field_message(&e->summary, SUMMARY_VALUE, p);
}

/* A tensor of one string, for TensorBoard's text tab. */
void mmi_events_text(mmi_events *e, const char *name, const char *text, size_t length)
{
    mmi_proto *value = &e->part[0], *outer = &e->part[1], *inner = &e->part[2];
    field_bytes(value, VALUE_TAG, name, strlen(name));
    field_bytes(inner, PLUGIN_NAME, "text", 4);
    field_message(outer, METADATA_PLUGIN, inner);
    field_int(outer, METADATA_CLASS, CLASS_TENSOR);
    field_message(value, VALUE_METADATA, outer);
    field_int(outer, TENSOR_TYPE, TYPE_STRING);
    field_bytes(outer, TENSOR_SHAPE, NULL, 0); /* rank 0 */
    field_bytes(outer, TENSOR_STRING, text, length);
    field_message(value, VALUE_TENSOR, outer);
    field_message(&e->summary, SUMMARY_VALUE, value);
}

mm_status mmi_events_write(mmi_events *e, int64_t step, double time)
{
    begin_event(e, step, time);
    field_message(&e->event, EVENT_SUMMARY, &e->summary);
    return write_event(e);
}
